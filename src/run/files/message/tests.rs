use super::*;

fn requests() -> Vec<Request> {
    let path = || c"/a b/\xff".to_owned();
    let attributes = Attributes { mode: Some(0o750), modified_ns: Some(-1), accessed_ns: None };
    vec![
        Request::Open(Open { path: path(), flags: libc::O_RDWR | libc::O_CREAT, mode: 0o644, parents: Parents(true) }),
        Request::Stat(path(), Follow(false)),
        Request::List(path(), i64::MAX, 7),
        Request::MakeDir(path(), 0o1777, Parents(false)),
        Request::Rename(path(), c"/c".to_owned(), Replace(true)),
        Request::Remove(path(), Below(true)),
        Request::Symlink(path(), c"..".to_owned()),
        Request::HardLink(path(), c"/d".to_owned()),
        Request::Set(path(), attributes),
    ]
}

fn answers() -> Vec<Answer> {
    let stat = FileStat { mode: 0o100644, modified_ns: i64::MIN, target: Some(c"x".to_owned()), ..FileStat::default() };
    vec![
        Answer::Failed(Errno::ENOENT),
        Answer::WrongType(libc::S_IFIFO),
        Answer::Done,
        Answer::Partly,
        Answer::File(FileStat::default()),
        Answer::Entries(vec![(c"a".to_owned(), stat), (c"...".to_owned(), FileStat::default())], Some(-7)),
    ]
}

#[test]
fn what_was_packed_is_unpacked_and_nothing_else() {
    for request in requests() {
        assert_eq!(Request::unpack(&request.pack(9)), Ok((9, request)));
    }
    for answer in answers() {
        let bytes = answer.pack(u64::MAX);
        assert_eq!(Answer::unpack(&bytes), Ok((u64::MAX, answer)));
        for length in 0..bytes.len() {
            assert_eq!(Answer::unpack(&bytes[..length]), Err(Errno::EBADMSG));
        }
        assert_eq!(Answer::unpack(&[&bytes[..], &[0]].concat()), Err(Errno::EBADMSG));
    }
    assert_eq!(Answer::unpack(&[0xff; 64]), Err(Errno::EBADMSG));
}

#[test]
fn an_entry_is_a_name_in_its_directory() {
    for name in [c"", c".", c"..", c"a/b", c"/", c"/etc"] {
        let answer = Answer::Entries(vec![(name.to_owned(), FileStat::default())], None);
        assert_eq!(Answer::unpack(&answer.pack(1)), Err(Errno::EBADMSG), "{name:?}");
    }
}

#[test]
fn an_answer_to_something_else_is_not_accepted() {
    for request in requests() {
        let accepted: Vec<_> = answers().into_iter().filter(|answer| request.accepts(answer)).collect();
        assert!(accepted.contains(&Answer::Failed(Errno::ENOENT)));
        assert!(accepted.len() <= 3, "{request:?}: {accepted:?}");
    }
    let [one, two] = [c"a", c"b"].map(|name| (name.to_owned(), FileStat::default()));
    assert!(!Request::List(c"/".to_owned(), 0, 1).accepts(&Answer::Entries(vec![one, two], None)));
}

#[test]
fn a_whole_answer_fits_into_a_packet() {
    let longest = FileStat { target: Some(CString::new(vec![b'x'; 4095]).unwrap()), ..FileStat::default() };
    let name = CString::new(vec![b'n'; 255]).unwrap();
    let mut entries = Vec::new();
    let mut size = 0;
    while size < MOST_LISTED {
        size += longest.packed(&name);
        entries.push((name.clone(), longest.clone()));
    }
    assert!(Answer::Entries(entries, Some(1)).pack(1).len() <= LARGEST);
}
