//! What happened when many gave commands about one container at once, and whether some order of them, in which none comes
//! before one that was over when it was given, has the outcomes that they had (linearizability, by the search of Wing and
//! Gong with a memory).

use std::collections::HashSet;
use std::fmt::Write as _;

/// A command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Verb {
    Create,
    Start,
    State,
    Exec,
    Pause,
    Resume,
    /// `kill ID KILL`.
    Kill,
    Delete,
    /// `delete --force`.
    Force,
}

/// What a command said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// That it did what it was to; `create` with the container's process.
    Done(i32),
    /// What the container is doing, and its process.
    Is(String, i32),
    /// That there is no such container.
    Missing,
    /// That there is one already.
    Exists,
    /// That it has ended.
    Stopped,
    /// That it has been started already, or still runs.
    Running,
    /// That it is paused.
    Paused,
    /// That it is not paused.
    NotPaused,
    /// That the container ended under it; `create` with the container's process if it came to that, or 0.
    Lost(i32),
    /// Anything else.
    Other(String),
}

/// A command that was given, and is over.
#[derive(Clone, Debug)]
pub struct Call {
    /// Who gave it: one after the other.
    pub client: usize,
    /// What it was.
    pub verb: Verb,
    /// When it was given and when it was over, in whatever unit.
    pub span: (u64, u64),
    /// What it said.
    pub outcome: Outcome,
}

impl Call {
    /// Whether nobody else can need that it was done.
    fn only_looks(&self) -> bool {
        use Outcome::*;
        match self.outcome {
            Is(..) | Missing | Stopped | Running | Paused | NotPaused => true,
            Done(_) => self.verb == Verb::Exec,
            Exists | Lost(_) | Other(_) => false,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Phase {
    Absent,
    /// By this client.
    Making(usize),
    Created,
    Running,
    Dead,
}

/// A container as commands see it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Model {
    phase: Phase,
    paused: bool,
    /// It was killed, and may be dead any time.
    dying: bool,
    /// How many there have been of this name.
    generation: u32,
    pid: i32,
}

/// What a command does in a moment: all it still had to, or a part, after which it remembers a generation.
type Step = (Model, Option<u32>);

impl Model {
    const ABSENT: Self = Self { phase: Phase::Absent, paused: false, dying: false, generation: 0, pid: 0 };

    fn is_alive(self) -> bool {
        matches!(self.phase, Phase::Created | Phase::Running)
    }

    /// Dead, or about to be: as a command saw that says it has ended.
    fn ended(self) -> Option<Self> {
        let gone = Self { phase: Phase::Dead, paused: false, dying: false, ..self };
        match self.phase {
            Phase::Dead => Some(self),
            _ if self.is_alive() && self.dying => Some(gone),
            _ => None,
        }
    }

    /// As it is by the time it dies: who kills what is paused lets it go on, so that it does.
    fn thawed(self) -> Option<Self> {
        (self.dying && self.paused).then_some(Self { paused: false, ..self })
    }

    fn removed(self) -> Self {
        Self { phase: Phase::Absent, paused: false, dying: false, pid: 0, ..self }
    }

    /// All that a command with this outcome may do now; nothing where it cannot have had it.
    fn steps(self, call: &Call, remembered: Option<u32>) -> Vec<Step> {
        use Outcome::*;
        let alive = self.is_alive();
        let done = |holds: bool, next: Self| if holds { vec![(next, None)] } else { Vec::new() };
        let part = |holds: bool, next: Self| if holds { vec![(next, Some(self.generation))] } else { Vec::new() };
        // Whoever is about to make one has a directory, and not its lock yet: others take it for one that was given up.
        let half_made = matches!(self.phase, Phase::Making(_));
        let ended = || match self.ended() {
            Some(next) => vec![(next, None)],
            None => done(half_made, self),
        };
        let lost = |begins: bool, next: Self| match remembered {
            None => part(begins, next),
            Some(generation) => done(generation != self.generation || self.ended().is_some() || !alive, self),
        };
        match (call.verb, &call.outcome) {
            (verb, Missing) if verb != Verb::Create => done(self.phase == Phase::Absent, self),
            (Verb::Create, Done(pid)) => {
                let made = Self { phase: Phase::Created, pid: *pid, generation: self.generation + 1, ..self.removed() };
                let making = Self { phase: Phase::Making(call.client), ..self };
                match (self.phase, remembered) {
                    (Phase::Absent, None) => part(true, making),
                    (Phase::Making(client), Some(_)) if client == call.client => done(true, made),
                    // Its directory was taken for one that was given up, and it makes another.
                    (Phase::Absent, Some(_)) => part(true, making),
                    _ => Vec::new(),
                }
            }
            // It was seen when it was ready, killed, and taken away again by who made it.
            (Verb::Create, Lost(pid)) => {
                let made = Self { phase: Phase::Created, pid: *pid, generation: self.generation + 1, ..self.removed() };
                match (self.phase, remembered) {
                    (Phase::Absent, None) => part(true, Self { phase: Phase::Making(call.client), ..self }),
                    (Phase::Making(client), Some(_)) if client == call.client => vec![(made, Some(made.generation))],
                    // Its directory was taken from it likewise.
                    (Phase::Absent, Some(_)) => part(true, Self { phase: Phase::Making(call.client), ..self }),
                    (_, Some(generation)) if generation == self.generation => {
                        done(self.ended().is_some(), self.removed())
                    }
                    _ => Vec::new(),
                }
            }
            // Or it had a directory, lost it as one that was given up, and somebody else has one now.
            (Verb::Create, Exists) => match self.phase {
                Phase::Absent => part(remembered.is_none(), Self { phase: Phase::Making(call.client), ..self }),
                phase => done(phase != Phase::Making(call.client), self),
            },
            (Verb::State, Is(status, pid)) => match status.as_str() {
                "creating" => done(half_made, self),
                "created" => done(self.phase == Phase::Created && !self.paused && *pid == self.pid, self),
                "running" => done(self.phase == Phase::Running && !self.paused && *pid == self.pid, self),
                "paused" => done(alive && self.paused && *pid == self.pid, self),
                "stopped" => ended(),
                _ => Vec::new(),
            },
            (Verb::Start, Done(_)) => {
                done(self.phase == Phase::Created && !self.paused, Self { phase: Phase::Running, ..self })
            }
            (Verb::Start, Lost(_)) => {
                lost(self.phase == Phase::Created && !self.paused, Self { phase: Phase::Running, ..self })
            }
            (Verb::Start, Running) => done(self.phase == Phase::Running && !self.paused, self),
            (Verb::Exec, Done(_)) => done(alive && !self.paused, self),
            (Verb::Exec, Lost(_)) => lost(alive && !self.paused, self),
            (Verb::Pause, Done(_)) => done(alive && !self.paused, Self { paused: true, ..self }),
            (Verb::Resume, Done(_)) => done(alive && self.paused, Self { paused: false, ..self }),
            (Verb::Resume, NotPaused) => done(alive && !self.paused, self),
            (Verb::Start | Verb::Exec | Verb::Pause, Paused) => done(alive && self.paused, self),
            (Verb::Kill, Done(_)) => done(alive, Self { dying: true, ..self }),
            (Verb::Start | Verb::Exec | Verb::Pause | Verb::Resume | Verb::Kill, Stopped) => ended(),
            (Verb::Delete, Running) => done(self.phase == Phase::Running && !self.paused, self),
            (Verb::Delete, Paused) => done(alive && self.paused, self),
            (Verb::Delete | Verb::Force, Done(_)) => {
                let force = call.verb == Verb::Force;
                if let Some(generation) = remembered {
                    return done(generation == self.generation && self.phase != Phase::Absent, self.removed());
                }
                // It dies first, which others see.
                let mut all = part(
                    alive && (force || self.phase == Phase::Created && !self.paused),
                    Self { dying: true, ..self },
                );
                let gone = self.ended().is_some() || half_made || force && self.phase == Phase::Absent;
                all.extend(done(gone, self.removed()));
                all
            }
            _ => Vec::new(),
        }
    }
}

/// Where each client is: its next command, and what of that has been done.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Progress {
    next: Vec<(usize, Option<u32>)>,
    model: Model,
}

/// Looks for an order. The error is the history, and how far the best one comes.
///
/// # Errors
/// There is none.
pub fn explain(calls: &[Call]) -> Result<(), String> {
    let clients = calls.iter().map(|call| call.client + 1).max().unwrap_or(0);
    let mut queues = vec![Vec::new(); clients];
    for call in calls {
        queues[call.client].push(call);
    }
    queues.iter_mut().for_each(|queue| queue.sort_by_key(|call| call.span));
    let first = Progress { next: vec![(0, None); clients], model: Model::ABSENT };
    let (mut seen, mut open) = (HashSet::from([first.clone()]), vec![first.clone()]);
    let (mut best, mut farthest) = (first, 0);
    while let Some(progress) = open.pop() {
        let pending = |client: usize| queues[client].get(progress.next[client].0).copied();
        let Some(over) = (0..clients).filter_map(pending).map(|call| call.span.1).min() else { return Ok(()) };
        let far: usize = progress.next.iter().map(|(at, _)| at).sum();
        if far > farthest {
            (best, farthest) = (progress.clone(), far);
        }
        let mut further = Vec::new();
        for client in 0..clients {
            // Not if another was over before it was given, and has not been done.
            let Some(call) = pending(client).filter(|call| call.span.0 <= over) else { continue };
            let (at, remembered) = progress.next[client];
            let thawed = progress.model.thawed().into_iter().flat_map(|model| model.steps(call, remembered));
            let steps: Vec<Step> = progress.model.steps(call, remembered).into_iter().chain(thawed).collect();
            // Who only looks may as well do so now: any order in which that comes later is one with it here.
            let idle = call.only_looks() && steps.contains(&(progress.model, None));
            if idle {
                further.clear();
            }
            for (model, part) in steps {
                let mut one = Progress { next: progress.next.clone(), model };
                one.next[client] = if part.is_some() { (at, part) } else { (at + 1, None) };
                if !idle || (model, part) == (progress.model, None) {
                    further.push(one);
                }
            }
            if idle {
                break;
            }
        }
        open.extend(further.into_iter().filter(|one| seen.insert(one.clone())));
    }
    let mut text = String::new();
    let mut sorted: Vec<&Call> = calls.iter().collect();
    sorted.sort_by_key(|call| call.span);
    for call in sorted {
        let queue = &queues[call.client];
        let at = queue.iter().position(|other| other.span == call.span).unwrap_or_default();
        let mark = match at.cmp(&best.next[call.client].0) {
            std::cmp::Ordering::Less => ' ',
            std::cmp::Ordering::Equal => '>',
            std::cmp::Ordering::Greater => '.',
        };
        let Call { client, verb, span, outcome } = call;
        let _ = writeln!(text, "{mark} {:>10}…{:<10} client {client} {verb:?}: {outcome:?}", span.0, span.1);
    }
    Err(format!("no order explains this; the best one ends before those with a >, at {:?}\n{text}", best.model))
}
