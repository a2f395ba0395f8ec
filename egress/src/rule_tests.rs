use super::*;

fn rules(allow: &[&str], deny: &[&str]) -> Rules {
    let parse = |texts: &[&str]| texts.iter().map(|text| text.parse().unwrap()).collect();
    Rules { allow: parse(allow), deny: parse(deny) }
}

fn name(text: &str) -> Name {
    text.parse().unwrap()
}

fn address(text: &str) -> IpAddr {
    text.parse().unwrap()
}

#[test]
fn a_rule_is_printed_as_it_is_read() {
    for text in [
        "api.example.com",
        "*.cdn.example.com:443",
        "db.internal:5432",
        "10.1.2.0/24:22,8000-8010",
        "10.1.2.3",
        "[2001:db8::1]:443",
        "[2001:db8::/32]:1-65535",
    ] {
        assert_eq!(text.parse::<Rule>().unwrap().to_string(), text);
    }
    assert_eq!("API.Example.com.:443".parse::<Rule>().unwrap().to_string(), "api.example.com:443");
    assert_eq!("[2001:DB8:0::1]".parse::<Rule>().unwrap().to_string(), "[2001:db8::1]");
}

#[test]
fn what_is_not_a_rule_is_refused() {
    for text in [
        "",
        ":443",
        "a:",
        "a:0",
        "a:65536",
        "a:+1",
        "a:1-",
        "a:2-1",
        "a:1,,2",
        "a: 1",
        "*",
        "*:443",
        "*a.example.com",
        "a.*.com",
        "*.*.com",
        "**.com",
        "https://a",
        "a/b",
        "a@b",
        "10.1.2.3/24",
        "10.1.2.0/33",
        "10.1.2",
        "10.1.2.3.4",
        "1.2.3.4.",
        "0x7f.1",
        "2001:db8::1",
        "2001:db8::1:443",
        "[2001:db8::1",
        "[2001:db8::1]443",
        "[a]",
        "[10.0.0.1]",
        "[fe80::1%eth0]",
        "[::ffff:10.0.0.1]",
        "[::ffff:0:0/96]",
        "a\0b",
        "a.b\0.google.com",
        "127.1",
        "a b",
    ] {
        assert!(text.parse::<Rule>().is_err(), "{text:?}");
    }
}

#[test]
fn without_ports_the_web_is_allowed_and_everything_denied() {
    let rules = rules(&["a.example", "*.b.example:1-9"], &["deep.b.example", "a.example:443"]);
    assert_eq!(rules.for_name(&name("a.example"), 80), Some(0));
    assert_eq!(rules.for_name(&name("a.example"), 443), None, "denying wins");
    assert_eq!(rules.for_name(&name("a.example"), 22), None);
    assert_eq!(rules.for_name(&name("x.b.example"), 9), Some(1));
    assert_eq!(rules.for_name(&name("b.example"), 9), None);
    assert_eq!(rules.for_name(&name("deep.b.example"), 9), None);
    assert_eq!(rules.for_name(&name("deeper.deep.b.example"), 9), Some(1));
    assert_eq!(rules.ports_of(&name("a.example")), [80]);
    assert_eq!(rules.ports_of(&name("deep.b.example")), [0_u16; 0]);
}

#[test]
fn a_name_never_allows_an_inner_address() {
    let rules = rules(&["a.example", "0.0.0.0/0", "[::/0]"], &[]);
    for inner in
        ["127.0.0.1", "10.0.0.5", "169.254.169.254", "::1", "fd00:ec2::254", "::ffff:8.8.8.8", "0.0.0.0", "198.18.0.1"]
    {
        assert!(matches!(rules.may_dial(address(inner), 443), Err(Refused::Special(_))), "{inner}");
        assert_eq!(rules.for_address(address(inner), 443), None, "{inner}");
    }
    assert_eq!(rules.may_dial(address("203.0.113.7"), 443), Ok(()));
    assert_eq!(rules.for_address(address("203.0.113.7"), 443), Some(1));
}

#[test]
fn a_rule_for_addresses_names_inner_ones_on_its_ports() {
    let rules = rules(&["db.internal:5432", "10.1.0.0/16:5432", "127.0.0.1:5432"], &["10.1.9.0/24"]);
    assert_eq!(rules.may_dial(address("10.1.2.3"), 5432), Ok(()));
    assert_eq!(rules.may_dial(address("127.0.0.1"), 5432), Ok(()));
    assert_eq!(rules.for_address(address("127.0.0.1"), 5432), None, "the sandbox's own");
    assert!(rules.may_dial(address("127.0.0.1"), 22).is_err());
    assert!(rules.may_dial(address("127.0.0.2"), 5432).is_err());
    assert!(rules.may_dial(address("10.2.0.1"), 5432).is_err());
    assert_eq!(rules.may_dial(address("10.1.9.1"), 5432), Err(Refused::Denied));
    assert_eq!(rules.for_address(address("10.1.2.3"), 5432), Some(1));
    assert_eq!(rules.for_address(address("10.1.9.3"), 5432), None);
}
