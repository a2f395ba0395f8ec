use super::*;

/// A ClientHello with these extensions, as one message of the handshake.
fn message(extensions: &[u8]) -> Vec<u8> {
    let mut body = vec![3, 3];
    body.extend([7; 32]);
    body.push(0); // session id
    body.extend([0, 2, 0x13, 1, 1, 0]); // one cipher suite, no compression
    if !extensions.is_empty() {
        body.extend((extensions.len() as u16).to_be_bytes());
        body.extend(extensions);
    }
    let mut message = vec![1, 0];
    message.extend((body.len() as u16).to_be_bytes());
    message.extend(body);
    message
}

/// The extension with these names.
fn names(names: &[&[u8]]) -> Vec<u8> {
    let entry = |name: &&[u8]| [&[0][..], &(name.len() as u16).to_be_bytes(), name].concat();
    let list: Vec<u8> = names.iter().flat_map(entry).collect();
    let mut extension = vec![0, 0];
    extension.extend((list.len() as u16 + 2).to_be_bytes());
    extension.extend((list.len() as u16).to_be_bytes());
    extension.extend(list);
    extension
}

fn records(message: &[u8], size: usize) -> Vec<u8> {
    message.chunks(size).flat_map(|part| [&[22, 3, 1][..], &(part.len() as u16).to_be_bytes(), part].concat()).collect()
}

#[test]
fn the_name_is_found_however_records_and_segments_are_cut() {
    let message = message(&[&[0xff, 1, 0, 1, 0][..], &names(&[b"a.example"])].concat());
    for size in [1, 2, 3, 4, 5, 50, 1 << 14] {
        let bytes = records(&message, size);
        for end in 0..bytes.len() {
            assert_eq!(read(&bytes[..end]), Hello::Incomplete, "{size} {end}");
        }
        assert_eq!(read(&bytes), Hello::Tls(Some(b"a.example".to_vec())), "{size}");
    }
}

#[test]
fn other_protocols_and_other_messages_are_told_apart() {
    assert_eq!(read(b"GET / HTTP/1.1\r\n"), Hello::NotTls);
    assert_eq!(read(b"SSH-2.0-x\r\n"), Hello::NotTls);
    assert_eq!(read(&[]), Hello::Incomplete);
    assert_eq!(read(&records(&message(&[]), 1 << 14)), Hello::Tls(None));
    assert_eq!(read(&records(&[2, 0, 0, 1, 0], 9)), Hello::Malformed, "a ServerHello");
    assert_eq!(read(&[22, 3, 1, 0, 0]), Hello::Malformed, "an empty record");
    assert_eq!(read(&[22, 2, 0, 0, 5, 1, 0, 0, 1, 0]), Hello::Malformed, "another version");
    assert_eq!(read(&[22, 3, 1, 0xff, 0xff]), Hello::Malformed, "a record that is too long");
}

#[test]
fn two_names_or_two_extensions_are_ambiguous() {
    let two = message(&names(&[b"a.example", b"b.example"]));
    assert_eq!(read(&records(&two, 99)), Hello::Malformed);
    let twice = message(&[names(&[b"a.example"]), names(&[b"b.example"])].concat());
    assert_eq!(read(&records(&twice, 99)), Hello::Malformed);
    let none = message(&[0, 0, 0, 2, 0, 0]);
    assert!(matches!(read(&records(&none, 99)), Hello::Malformed | Hello::Tls(None)));
    let cut = message(&[&names(&[b"a.example"])[..], &[0, 5, 0, 9]].concat());
    assert_eq!(read(&records(&cut, 99)), Hello::Malformed, "an extension that is cut");
}

#[test]
fn an_endless_hello_is_malformed() {
    let mut endless = vec![1, 0xff, 0xff, 0xff];
    endless.resize(LONGEST, 0);
    assert_eq!(read(&records(&endless, 1 << 14)), Hello::Malformed);
    let mut tiny = records(&vec![1; LONGEST], 1);
    tiny.truncate(LONGEST);
    assert_eq!(read(&tiny), Hello::Malformed);
}

proptest::proptest! {
    #[test]
    fn no_input_is_read_twice_differently(bytes: Vec<u8>, cut in 0_usize..64) {
        let bytes = [&[22, 3, 1][..], &bytes].concat();
        let whole = read(&bytes);
        // What is decided of a beginning stays decided.
        let early = read(&bytes[..cut.min(bytes.len())]);
        assert!(early == Hello::Incomplete || early == whole);
    }
}
