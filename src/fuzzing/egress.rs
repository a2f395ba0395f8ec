//! Properties of the parsers of network access by name: rules, packets of the name server and of resolvers, ClientHello.

use std::time::Instant;

use stockade_egress::client_hello::{Hello, read};
use stockade_egress::layout::Layout;
use stockade_egress::name::Name;
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
