use super::*;

fn proxy(text: &str) -> Proxy {
    text.parse().unwrap()
}

/// The words said before the connection was made, and the host's first bytes.
fn talk(proxy: &Proxy, answers: &[&[u8]], step: usize) -> Result<(Vec<Vec<u8>>, Vec<u8>), Fault> {
    let (mut conversation, first) = Conversation::begin(proxy, "203.0.113.10:443".parse().unwrap());
    let mut said = vec![first];
    for answer in answers {
        for part in answer.chunks(step) {
            match conversation.hear(part)? {
                Next::Listen => {}
                Next::Say(words) => said.push(words),
                Next::Connected(rest) => return Ok((said, rest)),
            }
        }
    }
    panic!("it waits for more: {said:?}")
}

#[test]
fn a_proxy_is_named_by_a_url() {
    for (text, shown) in [
        ("http://proxy.example:3128", "http://proxy.example:3128"),
        ("HTTP://Proxy.Example/", "http://proxy.example:80"),
        ("socks5://192.0.2.1", "socks5://192.0.2.1:1080"),
        ("socks5://[2001:db8::1]:9", "socks5://[2001:db8::1]:9"),
        ("http://u:secret@192.0.2.1:3128", "http://u@192.0.2.1:3128"),
        ("socks5://a%20b:s%3Acret@p.example:1", "socks5://a%20b@p.example:1"),
    ] {
        let found = proxy(text);
        assert_eq!(found.to_string(), shown, "{text}");
        assert_eq!(proxy(shown).to_string(), shown);
        assert!(!format!("{found:?}").contains("secret"), "{found:?}");
        assert!(!serde_json::to_string(&found).unwrap().contains("secret"));
    }
}

#[test]
fn no_error_repeats_a_password() {
    for text in [
        "https://u:secret@p.example:1",
        "http://u:secret@p.example:1/path",
        "http://u:secret@p.example:1?x",
        "http://u:secret@p.example:99999",
        "http://u:secret@p.example:0",
        "socks5://u:secret@:1",
        "socks5://u:secret@a b:1",
        "http://:secret@p.example:1",
        "http://u%3Ax:secret@p.example:1",
        "u:secret@p.example:1",
        "p.example:3128",
        "",
    ] {
        let error = text.parse::<Proxy>().unwrap_err();
        assert!(!error.contains("secret"), "{text}: {error}");
    }
    assert!(format!("http://u:{}@p.example:1", "x".repeat(256)).parse::<Proxy>().is_err());
}

#[test]
fn http_connects_whatever_way_its_answer_is_cut() {
    let answer = b"HTTP/1.1 200 Connection established\r\nVia: x\r\n\r\nhello";
    for step in 1..answer.len() {
        let (said, rest) = talk(&proxy("http://p.example:1"), &[answer], step).unwrap();
        assert_eq!(said, [b"CONNECT 203.0.113.10:443 HTTP/1.1\r\nHost: 203.0.113.10:443\r\n\r\n"]);
        assert!(b"hello".starts_with(&rest), "{rest:?}");
    }
    let (said, _) = talk(&proxy("http://u:p@p.example:1"), &[answer], 99).unwrap();
    assert!(String::from_utf8_lossy(&said[0]).contains("\r\nProxy-Authorization: Basic dTpw\r\n\r\n"));
}

#[test]
fn bad_answers_of_http_make_no_connection() {
    let refused = |code: &str| Fault::Refused(code.to_owned());
    let long = [b"HTTP/1.1 200 OK\r\nX: ".as_slice(), &vec![b'x'; LONGEST]].concat();
    let fields = [b"HTTP/1.1 200 OK\r\n".to_vec(), b"A: b\r\n".repeat(FIELDS + 1), b"\r\n".to_vec()].concat();
    for (answer, fault) in [
        (&b"HTTP/1.1 403 No\r\n\r\n"[..], refused("403")),
        (b"HTTP/1.0 502 Bad\r\nX: y\r\n\r\nbody", refused("502")),
        (b"HTTP/1.1 302 x\r\n\r\n", refused("302")),
        (b"HTTP/1.1 407 x\r\n\r\n", Fault::Login),
        (b"HTTP/1.1 100 Continue\r\n\r\n", Fault::Malformed),
        (b"HTTP/1.1 999 x\r\n\r\n", Fault::Malformed),
        (b"HTTP/2 200 x\r\n\r\n", Fault::Malformed),
        (b"SSH-2.0-x\r\n", Fault::Malformed),
        (b"\x05\x00", Fault::Malformed),
        (b"HTTP/1.1 200 OK\r\nno field\r\n\r\n", Fault::Malformed),
        (&long, Fault::Malformed),
        (&fields, Fault::Malformed),
    ] {
        let shown = String::from_utf8_lossy(&answer[..answer.len().min(40)]);
        assert_eq!(talk(&proxy("http://p.example:1"), &[answer], 4096).unwrap_err(), fault, "{shown}");
    }
}

#[test]
fn socks_connects_with_and_without_a_login() {
    let open = proxy("socks5://p.example");
    let (login, reply) = (proxy("socks5://user:pw@p.example"), &b"\x05\0\0\x01\x7f\0\0\x01\0\x09hello"[..]);
    let request = b"\x05\x01\0\x01\xcb\0\x71\x0a\x01\xbb".to_vec();
    for step in [1, 2, 99] {
        let (said, rest) = talk(&open, &[b"\x05\0", reply], step).unwrap();
        assert_eq!(said, [b"\x05\x01\0".to_vec(), request.clone()]);
        assert!(b"hello".starts_with(&rest));
        let (said, _) = talk(&login, &[b"\x05\x02", b"\x01\0", reply], step).unwrap();
        assert_eq!(said, [b"\x05\x02\0\x02".to_vec(), b"\x01\x04user\x02pw".to_vec(), request.clone()]);
        let (said, _) = talk(&login, &[b"\x05\0", b"\x05\0\0\x03\x01a\0\x09"], step).unwrap();
        assert_eq!(said.len(), 2, "it wants no login");
        let (_, rest) = talk(&open, &[b"\x05\0", &[b"\x05\0\0\x04".as_slice(), &[0; 18]].concat()], step).unwrap();
        assert!(rest.is_empty());
    }
}

#[test]
fn bad_answers_of_socks_make_no_connection() {
    let (open, login) = (proxy("socks5://p.example"), proxy("socks5://u:p@p.example"));
    let refused = |why: &str| Fault::Refused(why.to_owned());
    for (with, answers, fault) in [
        (&open, &[&b"\x04\0"[..]][..], Fault::Malformed),
        (&open, &[b"\x05\x02"], Fault::Malformed), // not offered
        (&login, &[b"\x05\x01"], Fault::Malformed),
        (&open, &[b"\x05\xff"], Fault::Login),
        (&login, &[b"\x05\x02", b"\x01\x01"], Fault::Login),
        (&login, &[b"\x05\x02", b"\x05\x00"], Fault::Malformed),
        (&open, &[b"\x05\0\x05\0\0\x01\0\0\0\0\0\0"], Fault::Malformed), // an answer before the question
        (&open, &[b"\x05\0", b"\x05\x05\0\x01\0\0\0\0\0\0"], refused("connection refused")),
        (&open, &[b"\x05\0", b"\x05\x02"], refused("not allowed by its rules")),
        (&open, &[b"\x05\0", b"\x05\x63"], refused("code 99")),
        (&open, &[b"\x05\0", b"\x05\0\0\x02"], Fault::Malformed),
        (&open, &[b"\x05\0", b"\x05\0\x01"], Fault::Malformed),
        (&open, &[b"\x05\0", b"\x04\0\0\x01"], Fault::Malformed),
        (&open, &[b"HTTP/1.1 400 Bad\r\n\r\n"], Fault::Malformed),
    ] {
        assert_eq!(talk(with, answers, 99).unwrap_err(), fault, "{answers:?}");
    }
}

proptest::proptest! {
    #[test]
    fn any_answer_ends_or_waits_within_bounds(bytes: Vec<u8>, socks: bool) {
        let proxy = proxy(if socks { "socks5://u:p@p.example" } else { "http://p.example:1" });
        let (mut conversation, _) = Conversation::begin(&proxy, "[2001:db8::1]:1".parse().unwrap());
        for part in bytes.chunks(3) {
            if !matches!(conversation.hear(part), Ok(Next::Listen | Next::Say(_))) {
                break;
            }
            assert!(conversation.heard.len() < LONGEST);
        }
    }
}
