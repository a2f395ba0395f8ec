//! Numbers and byte strings, one after another, for a process of ours that shares no memory with the writer.

use std::ffi::CString;

use nix::errno::Errno;

/// Writes them.
#[derive(Debug, Default)]
pub struct Packer(Vec<u8>);

impl Packer {
    /// Adds a number.
    pub fn number(&mut self, number: u64) {
        self.0.extend(number.to_ne_bytes());
    }

    /// Adds a string.
    pub fn string(&mut self, text: &CString) {
        self.number(text.as_bytes().len() as u64);
        self.0.extend(text.as_bytes());
    }

    /// Adds a list of strings.
    pub fn strings(&mut self, all: &[CString]) {
        self.number(all.len() as u64);
        all.iter().for_each(|text| self.string(text));
    }

    /// What was written.
    pub fn into_bytes(self) -> Vec<u8> {
        self.0
    }
}

/// Reads them. Bytes that are not what was expected are `EBADMSG`.
#[derive(Debug)]
pub struct Unpacker<'a>(&'a [u8]);

impl<'a> Unpacker<'a> {
    /// From the beginning.
    pub fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    fn bytes(&mut self, length: u64) -> Result<&'a [u8], Errno> {
        let length = usize::try_from(length).map_err(|_| Errno::EBADMSG)?;
        let (taken, rest) = self.0.split_at_checked(length).ok_or(Errno::EBADMSG)?;
        self.0 = rest;
        Ok(taken)
    }

    /// The next number.
    pub fn number(&mut self) -> Result<u64, Errno> {
        let bytes = self.bytes(8)?.try_into().map_err(|_| Errno::EBADMSG)?;
        Ok(u64::from_ne_bytes(bytes))
    }

    /// The next string.
    pub fn string(&mut self) -> Result<CString, Errno> {
        let length = self.number()?;
        CString::new(self.bytes(length)?).map_err(|_| Errno::EBADMSG)
    }

    /// Whether nothing is left.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The next list of strings.
    pub fn strings(&mut self) -> Result<Vec<CString>, Errno> {
        (0..self.number()?).map(|_| self.string()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_packed_is_unpacked_and_nothing_else() {
        let mut packer = Packer::default();
        packer.number(7);
        packer.strings(&[c"a".to_owned(), c"".to_owned()]);
        let bytes = packer.into_bytes();
        let read = |bytes: &[u8]| {
            let mut unpacker = Unpacker::new(bytes);
            Ok::<_, Errno>((unpacker.number()?, unpacker.strings()?))
        };
        assert_eq!(read(&bytes), Ok((7, vec![c"a".to_owned(), c"".to_owned()])));
        for length in 0..bytes.len() {
            assert_eq!(read(&bytes[..length]), Err(Errno::EBADMSG), "{length}");
        }
        assert_eq!(read(&[u8::MAX; 64]), Err(Errno::EBADMSG));
    }
}
