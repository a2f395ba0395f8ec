use super::*;

/// Mutations per seed. Few: `tests/fuzz` runs longer.
const MUTATIONS: u64 = 300;

fn corpus(name: &str) -> Vec<Vec<u8>> {
    let place = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus").join(name);
    let files = std::fs::read_dir(&place).unwrap_or_else(|error| panic!("{}: {error}", place.display()));
    let mut files: Vec<_> = files.flatten().map(|file| file.path()).collect();
    files.sort(); // a seed's mutations depend on its position
    files.iter().map(|file| std::fs::read(file).unwrap()).collect()
}

/// A deterministic generator: Marsaglia's xorshift.
struct Chance(u64);

impl Chance {
    fn below(&mut self, most: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % most.max(1) as u64) as usize
    }

    fn mutate(&mut self, seed: &[u8]) -> Vec<u8> {
        const ODD: [&[u8]; 12] = [
            b"\0",
            b"\xff",
            b"\"",
            b"{}",
            b"[",
            b"null",
            b"-1",
            b"18446744073709551616",
            b"\\u0000",
            b"\n",
            b"..",
            b"/",
        ];
        let mut bytes = seed.to_vec();
        for _ in 0..1 + self.below(4) {
            let (from, to) = (self.below(bytes.len() + 1), self.below(bytes.len() + 1));
            let (from, to) = (from.min(to), from.max(to));
            match self.below(5) {
                0 => drop(bytes.drain(from..to)),
                1 => bytes.truncate(from),
                2 => drop(bytes.splice(from..from, ODD[self.below(ODD.len())].iter().copied())),
                3 => bytes.extend_from_within(from..to.min(from + 64)),
                _ if from < bytes.len() => bytes[from] ^= 1 << self.below(8),
                _ => {}
            }
        }
        bytes
    }
}

fn replay(name: &str) {
    let holds = property(name);
    let seeds = corpus(name);
    assert!(seeds.len() >= 3, "the corpus of {name} was found");
    for (number, seed) in seeds.iter().enumerate() {
        holds(seed);
        let mut chance = Chance(0x9e37_79b9_7f4a_7c15 ^ (number as u64 + 1));
        // Long seeds are slow.
        for _ in 0..MUTATIONS / (1 + seed.len() as u64 / 4096) {
            holds(&chance.mutate(seed));
        }
    }
}

#[test]
fn every_target_has_a_property_and_a_corpus() {
    let place = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz");
    let names = |directory: &str| {
        let files = std::fs::read_dir(place.join(directory)).unwrap().flatten();
        let mut names: Vec<_> =
            files.map(|file| file.path().file_stem().unwrap().to_string_lossy().into_owned()).collect();
        names.sort();
        names
    };
    let known: Vec<_> = PROPERTIES.iter().map(|(name, _)| (*name).to_owned()).collect();
    assert_eq!(names("fuzz_targets"), known);
    assert_eq!(names("corpus"), known);
    assert_eq!(REPLAYED, known);
}

macro_rules! replays {
    ($($name:ident)+) => {
        const REPLAYED: &[&str] = &[$(stringify!($name)),+];
        $(
        #[test]
        fn $name() {
            replay(stringify!($name));
        }
    )+};
}

replays! {
    audit_line audit_record client_hello dns_packet file_messages init_frames mountinfo net_rule oci_config policy proc_stat proxy_answer report resolver
    seccomp_profile session_packet state terminal units
}
