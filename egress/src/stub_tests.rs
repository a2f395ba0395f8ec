use std::str::FromStr as _;

use hickory_proto::op::Query;
use hickory_proto::rr::Name as WireName;

use super::*;

fn rules(allow: &[&str], deny: &[&str]) -> Rules {
    let parse = |texts: &[&str]| texts.iter().map(|text| text.parse().unwrap()).collect();
    Rules { allow: parse(allow), deny: parse(deny) }
}

fn packet(name: &str, kind: RecordType) -> Vec<u8> {
    let mut message = Message::new(7, MessageType::Query, OpCode::Query);
    message.add_query(Query::query(WireName::from_str(name).unwrap(), kind));
    message.to_vec().unwrap()
}

fn ask(names: &mut Names, rules: &Rules, packet: &[u8]) -> (ResponseCode, Vec<Ipv4Addr>, Asked) {
    let (reply, asked) = names.answer(packet, rules, Instant::now());
    let reply = Message::from_vec(&reply.unwrap()).unwrap();
    let address = |record: &Record| match &record.data {
        RData::A(A(address)) => *address,
        other => panic!("{other:?}"),
    };
    (reply.metadata.response_code, reply.answers.iter().map(address).collect(), asked)
}

#[test]
fn allowed_names_have_an_address_and_others_do_not_exist() {
    let rules = rules(&["a.example", "*.b.example:443"], &["x.b.example"]);
    let mut names = Names::new(&Layout::of(&rules).unwrap());
    let one = Ipv4Addr::new(198, 18, 0, 2);
    for form in ["a.example.", "A.EXAMPLE.", "a.Example."] {
        assert_eq!(
            ask(&mut names, &rules, &packet(form, RecordType::A)),
            (ResponseCode::NoError, vec![one], Asked::Answered)
        );
    }
    assert_eq!(ask(&mut names, &rules, &packet("a.example.", RecordType::AAAA)).0, ResponseCode::NoError);
    assert_eq!(ask(&mut names, &rules, &packet("a.example.", RecordType::AAAA)).1, [Ipv4Addr::LOCALHOST; 0]);
    assert_eq!(ask(&mut names, &rules, &packet("n.b.example.", RecordType::A)).1, [Ipv4Addr::new(198, 19, 0, 0)]);
    for other in
        ["b.example.", "x.b.example.", "c.example.", "aa.example.", "a.example.c.", ".", "1.0.18.198.in-addr.arpa."]
    {
        let (code, found, asked) = ask(&mut names, &rules, &packet(other, RecordType::A));
        assert_eq!((code, found.len()), (ResponseCode::NXDomain, 0), "{other}");
        assert!(matches!(asked, Asked::Refused(_)), "{other}");
    }
}

#[test]
fn a_name_keeps_its_address_and_gives_it_back_later() {
    let rules = rules(&["*.example"], &[]);
    let mut names = Names::new(&Layout::of(&rules).unwrap());
    let start = Instant::now();
    let at = |number: u32| format!("n{number}.example").parse::<Name>().unwrap();
    let first = names.address_of(&at(0), start).unwrap();
    for number in 1..POOL {
        assert!(names.address_of(&at(number), start).is_some_and(|address| address != first));
    }
    assert_eq!(names.address_of(&at(POOL), start), None);
    assert_eq!(names.address_of(&at(0), start), Some(first));
    names.hold(first, true);
    let later = start + 3 * KEPT;
    for number in POOL..2 * POOL - 1 {
        assert!(names.address_of(&at(number), later).is_some_and(|address| address != first), "{number}");
    }
    assert_eq!(names.at(first), Some(&at(0)), "a connection holds its name");
    assert_eq!(names.address_of(&at(3 * POOL), later), None);
}

#[test]
fn broken_packets_get_an_error_or_nothing() {
    let rules = rules(&["a.example"], &[]);
    let mut names = Names::new(&Layout::of(&rules).unwrap());
    let good = packet("a.example.", RecordType::A);
    let mut answer = |bytes: &[u8]| names.answer(bytes, &rules, Instant::now()).0;
    for end in 0..12 {
        assert_eq!(answer(&good[..end]), None);
    }
    let mut reply = good.clone();
    reply[2] |= 0x80;
    assert_eq!(answer(&reply), None, "a reply");
    let code = |bytes: Option<Vec<u8>>| Message::from_vec(&bytes.unwrap()).unwrap().metadata.response_code;
    for end in 12..good.len() {
        assert_eq!(code(answer(&good[..end])), ResponseCode::FormErr, "{end}");
    }
    let mut looped = good[..12].to_vec();
    looped.extend([0xc0, 12, 0, 1, 0, 1]); // a pointer to itself
    assert_eq!(code(answer(&looped)), ResponseCode::FormErr);
    let mut many = Message::new(7, MessageType::Query, OpCode::Query);
    for _ in 0..9 {
        many.add_query(Query::query(WireName::from_str("a.example.").unwrap(), RecordType::A));
    }
    assert_eq!(code(answer(&many.to_vec().unwrap())), ResponseCode::FormErr);
    // Labels with a dot, a NUL byte or a space are other names than they seem.
    for label in [&b"\x09a.example\x00"[..], b"\x02a\0\x07example\x00", b"\x02a \x07example\x00"] {
        let packet = [&good[..12], label, &[0, 1, 0, 1]].concat();
        assert_eq!(code(answer(&packet)), ResponseCode::NXDomain, "{label:?}");
    }
}

proptest::proptest! {
    #[test]
    fn any_packet_is_answered_or_not(bytes: Vec<u8>) {
        let rules = rules(&["a.example", "*.b.example"], &[]);
        let mut names = Names::new(&Layout::of(&rules).unwrap());
        drop(names.answer(&bytes, &rules, Instant::now()));
    }
}

#[test]
fn a_name_of_the_pool_that_a_rule_names_later_gets_its_own_address() {
    let before = rules(&["*.example"], &[]);
    let mut layout = Layout::of(&before).unwrap();
    let mut names = Names::new(&layout);
    let (start, name) = (Instant::now(), "a.example".parse::<Name>().unwrap());
    let pooled = names.address_of(&name, start).unwrap();
    let after = rules(&["*.example", "a.example:22"], &[]);
    layout.grow(&after).unwrap();
    names.grow(&layout);
    let own = Ipv4Addr::new(198, 18, 0, 2);
    assert_eq!(ask(&mut names, &after, &packet("a.example.", RecordType::A)).1, [own]);
    assert_eq!(names.at(pooled), Some(&name), "programs may still know the address");
    let later = start + 2 * KEPT;
    for number in 0..POOL {
        names.address_of(&format!("n{number}.example").parse().unwrap(), later);
    }
    assert_ne!(names.at(pooled), Some(&name));
    assert_eq!(names.address_of(&name, later), Some(own));
}
