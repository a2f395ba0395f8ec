//! The door `stockade`.

fn main() {}
