//! The messages of criu's protocol, with the names and numbers of `criu/rpc.proto`: the fields that are used here.
//!
//! They are encoded as protocol buffers. A derive crate for this format brings six crates, so the few lines are here.

/// Bytes of a text: paths need not be UTF-8.
type Text = Vec<u8>;

/// A value of a field on the wire.
enum Wire<'a> {
    Number(u64),
    Bytes(&'a [u8]),
}

/// A field of a message. A field that is missing has its default value, and a default value is not sent.
trait Field {
    fn put(&self, number: u64, out: &mut Vec<u8>);
    fn set(&mut self, value: &Wire<'_>) -> Option<()>;
}

/// Defines messages by their fields. A field of a received message that is not listed is ignored.
macro_rules! messages {
    ($($(#[$doc:meta])* $name:ident { $($field:ident: $kind:ty = $number:literal,)* })*) => {$(
        $(#[$doc])*
        #[derive(Clone, Debug, Default, PartialEq, Eq)]
        #[allow(missing_docs)]
        pub struct $name {
            $(pub $field: $kind,)*
        }

        impl $name {
            /// The encoded message.
            pub fn encode(&self) -> Vec<u8> {
                let mut out = Vec::new();
                $(self.$field.put($number, &mut out);)*
                out
            }

            /// Decodes a message; `None` if it is invalid.
            pub fn decode(mut bytes: &[u8]) -> Option<Self> {
                let mut message = Self::default();
                while !bytes.is_empty() {
                    match next(&mut bytes)? {
                        $(($number, value) => message.$field.set(&value)?,)*
                        _ => {}
                    }
                }
                Some(message)
            }
        }

        impl Field for Option<$name> {
            fn put(&self, number: u64, out: &mut Vec<u8>) {
                if let Some(message) = self {
                    put_bytes(number, &message.encode(), out);
                }
            }

            fn set(&mut self, value: &Wire<'_>) -> Option<()> {
                let Wire::Bytes(bytes) = value else { return None };
                *self = Some($name::decode(bytes)?);
                Some(())
            }
        }

        impl Field for Vec<$name> {
            fn put(&self, number: u64, out: &mut Vec<u8>) {
                self.iter().for_each(|message| put_bytes(number, &message.encode(), out));
            }

            fn set(&mut self, value: &Wire<'_>) -> Option<()> {
                let Wire::Bytes(bytes) = value else { return None };
                self.push($name::decode(bytes)?);
                Some(())
            }
        }
    )*};
}

messages! {
    /// A request, or the reply to a notification.
    CriuReq {
        kind: u64 = 1, // `type`, a word of Rust
        opts: Option<CriuOpts> = 2,
        notify_success: bool = 3,
    }

    /// An answer, or a notification.
    CriuResp {
        kind: u64 = 1, // `type`
        success: bool = 2,
        restore: Option<CriuRestoreResp> = 4,
        notify: Option<CriuNotify> = 5,
        cr_errno: u64 = 7,
        cr_errmsg: Text = 9,
    }

    /// The restored process.
    CriuRestoreResp {
        pid: u64 = 1,
    }

    /// A stage that was reached.
    CriuNotify {
        script: Text = 1,
        pid: u64 = 2,
    }

    /// The options of a request.
    CriuOpts {
        images_dir_fd: u64 = 1,
        pid: u64 = 2,
        leave_running: bool = 3,
        ext_unix_sk: bool = 4,
        tcp_established: bool = 5,
        shell_job: bool = 7,
        file_locks: bool = 8,
        log_level: u64 = 9,
        log_file: Text = 10,
        notify_scripts: bool = 12,
        root: Text = 13,
        parent_img: Text = 14,
        track_mem: bool = 15,
        auto_dedup: bool = 16,
        work_dir_fd: u64 = 17,
        link_remap: bool = 18,
        manage_cgroups: bool = 24,
        cg_root: Vec<CgroupRoot> = 25,
        rst_sibling: bool = 26,
        inherit_fd: Vec<InheritFd> = 27,
        ext_masters: bool = 30,
        manage_cgroups_mode: Option<CgMode> = 34,
        external: Vec<Text> = 37,
        empty_ns: u64 = 38,
        freeze_cgroup: Text = 44,
        tcp_skip_in_flight: bool = 46,
        orphan_pts_master: bool = 50,
        tcp_close: bool = 52,
        lsm_profile: Text = 53,
        lsm_mount_context: Text = 63,
    }

    /// The cgroup into which a container is restored.
    CgroupRoot {
        ctrl: Text = 1,
        path: Text = 2,
    }

    /// A descriptor that a restored container gets.
    InheritFd {
        key: Text = 1,
        fd: Option<u64> = 2,
    }
}

/// `criu_cg_mode`: what is restored of cgroups.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum CgMode {
    Ignore = 0,
    Soft = 3,
    Full = 4,
    Strict = 5,
}

impl Field for u64 {
    fn put(&self, number: u64, out: &mut Vec<u8>) {
        if *self != 0 {
            Some(*self).put(number, out);
        }
    }

    fn set(&mut self, value: &Wire<'_>) -> Option<()> {
        let Wire::Number(found) = value else { return None };
        *self = *found;
        Some(())
    }
}

/// A number that is sent even if it is 0.
impl Field for Option<u64> {
    fn put(&self, number: u64, out: &mut Vec<u8>) {
        if let Some(value) = self {
            put_varint(number << 3, out);
            put_varint(*value, out);
        }
    }

    fn set(&mut self, value: &Wire<'_>) -> Option<()> {
        self.insert(0).set(value)
    }
}

impl Field for bool {
    fn put(&self, number: u64, out: &mut Vec<u8>) {
        u64::from(*self).put(number, out);
    }

    fn set(&mut self, value: &Wire<'_>) -> Option<()> {
        let mut found = 0u64;
        found.set(value)?;
        *self = found != 0;
        Some(())
    }
}

impl Field for Option<CgMode> {
    fn put(&self, number: u64, out: &mut Vec<u8>) {
        self.map(|mode| mode as u64).put(number, out);
    }

    fn set(&mut self, _: &Wire<'_>) -> Option<()> {
        Some(()) // only sent
    }
}

impl Field for Text {
    fn put(&self, number: u64, out: &mut Vec<u8>) {
        if !self.is_empty() {
            put_bytes(number, self, out);
        }
    }

    fn set(&mut self, value: &Wire<'_>) -> Option<()> {
        let Wire::Bytes(bytes) = value else { return None };
        *self = bytes.to_vec();
        Some(())
    }
}

impl Field for Vec<Text> {
    fn put(&self, number: u64, out: &mut Vec<u8>) {
        self.iter().for_each(|text| put_bytes(number, text, out));
    }

    fn set(&mut self, value: &Wire<'_>) -> Option<()> {
        let Wire::Bytes(bytes) = value else { return None };
        self.push(bytes.to_vec());
        Some(())
    }
}

fn put_varint(mut number: u64, out: &mut Vec<u8>) {
    while number > 0x7f {
        out.push((number & 0x7f) as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

fn put_bytes(number: u64, bytes: &[u8], out: &mut Vec<u8>) {
    put_varint(number << 3 | 2, out);
    put_varint(bytes.len() as u64, out);
    out.extend_from_slice(bytes);
}

/// Takes the next field: its number and value.
fn next<'a>(bytes: &mut &'a [u8]) -> Option<(u64, Wire<'a>)> {
    let key = take_varint(bytes)?;
    let value = match key & 7 {
        0 => Wire::Number(take_varint(bytes)?),
        1 => Wire::Bytes(take(bytes, 8)?),
        2 => {
            let length = take_varint(bytes)?;
            Wire::Bytes(take(bytes, length)?)
        }
        5 => Wire::Bytes(take(bytes, 4)?),
        _ => return None,
    };
    Some((key >> 3, value))
}

fn take_varint(bytes: &mut &[u8]) -> Option<u64> {
    let mut number = 0u64;
    for shift in (0..64).step_by(7) {
        let (byte, rest) = bytes.split_first()?;
        *bytes = rest;
        number |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some(number);
        }
    }
    None
}

fn take<'a>(bytes: &mut &'a [u8], length: u64) -> Option<&'a [u8]> {
    let (taken, rest) = bytes.split_at_checked(usize::try_from(length).ok()?)?;
    *bytes = rest;
    Some(taken)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_encoded_as_protocol_buffers_are() {
        let inherit_fd = vec![InheritFd { key: b"k".to_vec(), fd: Some(0) }];
        let opts = CriuOpts {
            images_dir_fd: 150,
            ext_unix_sk: true,
            inherit_fd,
            manage_cgroups_mode: Some(CgMode::Ignore),
            external: vec![b"ab".to_vec()],
            ..CriuOpts::default()
        };
        let inner = [
            &[0x08, 0x96, 1][..],
            &[0x20, 1],
            &[0xda, 1, 5, 0x0a, 1, b'k', 0x10, 0],
            &[0x90, 2, 0],
            &[0xaa, 2, 2, b'a', b'b'],
        ]
        .concat();
        assert_eq!(opts.encode(), inner);
        let request = CriuReq { kind: 2, opts: Some(opts), notify_success: false };
        assert_eq!(request.encode(), [&[0x08, 2, 0x12, inner.len() as u8][..], &inner].concat());
    }

    #[test]
    fn truncated_answers_are_survived() {
        let answer = CriuResp {
            kind: 6,
            success: true,
            restore: Some(CriuRestoreResp { pid: 78 }),
            notify: Some(CriuNotify { script: b"post-restore".to_vec(), pid: 77 }),
            cr_errno: 2,
            cr_errmsg: b"why".to_vec(),
        };
        let bytes = answer.encode();
        assert_eq!(CriuResp::decode(&bytes), Some(answer));
        for length in 0..bytes.len() {
            let _ = CriuResp::decode(&bytes[..length]);
        }
        assert!(CriuResp::decode(&[0x12, 0xff]).is_none() && CriuResp::decode(&[0xff; 12]).is_none());
        // An unknown field, of each length.
        let unknown = [&[0xa0, 1, 1][..], &[0xa1, 1, 0, 0, 0, 0, 0, 0, 0, 0], &[0xa5, 1, 0, 0, 0, 0]].concat();
        assert_eq!(CriuResp::decode(&unknown), Some(CriuResp::default()));
    }
}
