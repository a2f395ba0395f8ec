//! Where memory comes from in a program with musl, whose own allocator asks the kernel for it, and gives it back, in small
//! pieces: as many calls as its quick start saves.

use std::alloc::{GlobalAlloc, Layout};
use std::cell::UnsafeCell;
use std::sync::atomic::{AtomicBool, Ordering};

use dlmalloc::Dlmalloc;

#[global_allocator]
static HEAP: Heap = Heap { taken: AtomicBool::new(false), heap: UnsafeCell::new(Dlmalloc::new()) };

/// dlmalloc behind a lock that costs one instruction: hardly any of our processes has a second thread, and the lock that the
/// crate brings, one of the C library's, is a third of what all allocating costs.
struct Heap {
    taken: AtomicBool,
    heap: UnsafeCell<Dlmalloc>,
}

// SAFETY: the heap is touched by who has taken the lock alone.
unsafe impl Sync for Heap {}

impl Heap {
    fn with<T>(&self, work: impl FnOnce(&mut Dlmalloc) -> T) -> T {
        while self.taken.swap(true, Ordering::Acquire) {
            std::thread::yield_now();
        }
        // SAFETY: we have the lock, and `work` neither allocates by this heap nor unwinds: dlmalloc calls nothing but the kernel.
        let done = work(unsafe { &mut *self.heap.get() });
        self.taken.store(false, Ordering::Release);
        done
    }
}

// SAFETY: dlmalloc keeps what is asked of an allocator, and gets the layouts that it is told of.
unsafe impl GlobalAlloc for Heap {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's layout is one.
        self.with(|heap| unsafe { heap.malloc(layout.size(), layout.align()) })
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: the caller vouches that this memory is ours and of this layout.
        self.with(|heap| unsafe { heap.free(memory, layout.size(), layout.align()) });
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as for `alloc`.
        self.with(|heap| unsafe { heap.calloc(layout.size(), layout.align()) })
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: as for `dealloc`.
        self.with(|heap| unsafe { heap.realloc(memory, layout.size(), layout.align(), size) })
    }
}
