//! Where names are resolved if nothing is said: the host's own files.

use super::world::World;
use super::{fetch, refusal};
use crate::common::{Caller, TempDir, for_each_caller, text};

/// Covers two files of the host, and goes on.
const COVER: &str = "mount --bind \"$0\" /etc/hosts && mount --bind \"$1\" /etc/resolv.conf && shift && exec \"$@\"";

#[test]
fn the_name_servers_and_hosts_of_the_host_are_used() {
    let Some(mut world) = World::new() else { return };
    let files = TempDir::new(Caller::Root);
    let hosts = files.file("hosts", "203.0.113.11 other.example.com named\n10.0.0.5 private.example.com\n");
    let resolv = files.file("resolv.conf", "# of the test\nsearch example.org\nnameserver 203.0.113.53\n");
    for_each_caller(|caller| {
        let cover = ["unshare", "-m", "--propagation", "private", "sh", "-c", COVER, text(&hosts), text(&resolv)];
        let entering = world.entering().into_iter().chain(cover.map(str::to_owned));
        let rules = ["named", "*.example.com"].into_iter().flat_map(|rule| ["--allow-net", rule]);
        let run = crate::common::Run::new(caller).outside(entering).opts(rules);
        let urls =
            ["http://named/", "http://other.example.com/", "http://api.example.com/", "http://private.example.com/"];
        let outcome = fetch(run, &urls);
        for (url, address) in [("named", "11"), ("other.example.com", "11"), ("api.example.com", "10")] {
            assert!(outcome.text().contains(&format!("http://{url}/=0 203.0.113.{address}")), "{outcome}");
        }
        let reason = refusal(&outcome, "private.example.com").unwrap_or_default();
        assert!(reason.starts_with("address_refused"), "also for a name of the hosts file: {outcome}");
    });
    assert_eq!(world.came().asked(), ["api.example.com"], "names of the hosts file are not asked for");
}
