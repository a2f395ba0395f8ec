//! What is counted while the gateway serves, in memory that other processes can read.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};

/// Open connections, bytes from the workload, and bytes to it.
#[derive(Clone, Copy, Debug)]
pub struct Traffic(pub &'static [AtomicU64; 3]);

impl Traffic {
    /// Sets the number of open connections.
    pub fn set_open(&self, open: u32) {
        self.0[0].store(open.into(), Ordering::Relaxed);
    }

    /// A count of bytes from the workload.
    pub fn sent(&self) -> Count {
        Count { bytes: Cell::new(0), all: &self.0[1] }
    }

    /// A count of bytes to the workload.
    pub fn received(&self) -> Count {
        Count { bytes: Cell::new(0), all: &self.0[2] }
    }
}

/// The bytes of one connection, in one direction.
#[derive(Debug)]
pub struct Count {
    bytes: Cell<u64>,
    all: &'static AtomicU64,
}

impl Count {
    /// Counts some.
    pub fn add(&self, bytes: u64) {
        self.bytes.set(self.bytes.get() + bytes);
        self.all.fetch_add(bytes, Ordering::Relaxed);
    }

    /// How many there were.
    pub fn get(&self) -> u64 {
        self.bytes.get()
    }
}
