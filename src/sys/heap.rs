//! The allocator of programs with musl. musl's own allocator requests memory from the kernel in small pieces and returns it,
//! and these calls cost as much as its fast start saves.

use std::alloc::{GlobalAlloc, Layout};
use std::cell::UnsafeCell;
use std::sync::atomic::{AtomicBool, Ordering};

use dlmalloc::Dlmalloc;

#[global_allocator]
static HEAP: Heap = Heap { taken: AtomicBool::new(false), heap: UnsafeCell::new(Dlmalloc::new()) };

/// dlmalloc with a lock that costs one instruction. Our processes rarely have a second thread, and the lock that the crate
/// brings, from the C library, takes a third of the time of all allocations.
struct Heap {
    taken: AtomicBool,
    heap: UnsafeCell<Dlmalloc>,
}

// SAFETY: only the holder of the lock accesses the heap.
unsafe impl Sync for Heap {}

impl Heap {
    fn with<T>(&self, work: impl FnOnce(&mut Dlmalloc) -> T) -> T {
        while self.taken.swap(true, Ordering::Acquire) {
            std::thread::yield_now();
        }
        // SAFETY: we hold the lock. `work` neither allocates from this heap nor unwinds: dlmalloc only calls the kernel.
        let done = work(unsafe { &mut *self.heap.get() });
        self.taken.store(false, Ordering::Release);
        done
    }
}

// SAFETY: dlmalloc fulfils the allocator's contract and receives the same layouts.
unsafe impl GlobalAlloc for Heap {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's layout is valid.
        self.with(|heap| unsafe { heap.malloc(layout.size(), layout.align()) })
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: the caller guarantees that this memory is ours and has this layout.
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
