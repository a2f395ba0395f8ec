//! Properties of the parsers of network access by name: rules, packets of the name server and of resolvers, ClientHello,
//! proxies.

use std::time::Instant;

use stockade_egress::client_hello::{Hello, read};
use stockade_egress::layout::Layout;
use stockade_egress::name::Name;
use stockade_egress::proxy::{Conversation, Next, Proxy};
use stockade_egress::rule::{Rule, Rules};
use stockade_egress::stub::Names;
use stockade_egress::upstream::read_answer;

/// A rule is refused, or means the same after it is written again; its layout is bounded.
pub fn net_rule(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let Ok(rule) = text.parse::<Rule>() else { return };
    assert_eq!(rule.to_string().parse::<Rule>().as_ref(), Ok(&rule));
    if let Ok(layout) = Layout::of(&Rules { allow: vec![rule], deny: Vec::new() }) {
        assert!(layout.sockets.len() <= stockade_egress::layout::MOST);
    }
}

/// No packet crashes the name server, and none but a question for an allowed name gets an address. No answer of a resolver crashes
/// us.
pub fn dns_packet(bytes: &[u8]) {
    let allow = ["a.example", "*.b.example:443"].map(|rule| rule.parse().expect("a rule")).to_vec();
    let rules = Rules { allow, deny: Vec::new() };
    let mut names = Names::new(&Layout::of(&rules).expect("a layout"));
    let (reply, _) = names.answer(bytes, &rules, Instant::now());
    if let Some(reply) = reply {
        assert!(reply.len() >= 12 && reply[2] & 0x80 != 0, "a reply is a reply");
        let has_answer = reply[6..8] != [0, 0];
        let lower = bytes.to_ascii_lowercase();
        assert!(!has_answer || lower.windows(7).any(|part| part == b"example"));
    }
    let name: Name = "a.example".parse().expect("a name");
    read_answer(bytes, &name);
}

/// What is decided of the beginning of a stream stays decided when more comes, and a server name is within what was sent.
pub fn client_hello(bytes: &[u8]) {
    let whole = read(bytes);
    for end in (0..bytes.len()).step_by(1 + bytes.len() / 16) {
        let early = read(&bytes[..end]);
        assert!(early == Hello::Incomplete || early == whole, "{early:?}, later {whole:?}");
    }
    if let Hello::Tls(Some(name)) = whole {
        assert!(name.len() <= bytes.len());
    }
}

/// A URL of a proxy is refused, or stays the same when it is written without its password. However an answer is cut, a connection is made
/// only after a success, and what follows it is the host's.
pub fn proxy_answer(bytes: &[u8]) {
    if let Some(proxy) = std::str::from_utf8(bytes).ok().and_then(|text| text.parse::<Proxy>().ok()) {
        let shown = proxy.to_string();
        assert_eq!(shown.parse::<Proxy>().map(|again| again.to_string()).as_ref(), Ok(&shown));
    }
    for url in ["http://u:p@192.0.2.1:3128", "socks5://192.0.2.1", "socks5://u:p@192.0.2.1"] {
        let proxy: Proxy = url.parse().expect("a URL");
        let ends: Vec<Option<Vec<u8>>> = [1, 7, bytes.len().max(1)].map(|step| connected(&proxy, bytes, step)).to_vec();
        let success: &[u8] = if url.starts_with("http") { b"HTTP/1." } else { b"\x05" };
        assert!(ends.iter().flatten().all(|rest| bytes.starts_with(success) && bytes.ends_with(rest)));
        assert!(!url.starts_with("http") || ends[0] == ends[1] && ends[1] == ends[2], "{ends:?}");
    }
}

/// The bytes after the answer with which the connection was made.
fn connected(proxy: &Proxy, bytes: &[u8], step: usize) -> Option<Vec<u8>> {
    let (mut conversation, _) = Conversation::begin(proxy, "[2001:db8::1]:443".parse().expect("an address"));
    let mut parts = bytes.chunks(step);
    while let Some(part) = parts.next() {
        match conversation.hear(part) {
            Ok(Next::Connected(rest)) => return Some(parts.fold(rest, |rest, part| [&rest, part].concat())),
            Ok(Next::Listen | Next::Say(_)) => {}
            Err(_) => return None,
        }
    }
    None
}
