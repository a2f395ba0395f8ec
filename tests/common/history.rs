//! Decides whether a history of concurrent commands about one container is linearizable: whether some order of the commands, in
//! which none precedes a command that had ended before it began, explains their outcomes. The search is Wing and Gong's, with
//! memoization.

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

/// The outcome of a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Success; for `create`, with the container's process.
    Done(i32),
    /// The container's status and process.
    Is(String, i32),
    /// The container does not exist.
    Missing,
    /// The container already exists.
    Exists,
    /// The container has ended.
    Stopped,
    /// The container was already started, or still runs.
    Running,
    /// The container is paused.
    Paused,
    /// The container is not paused.
    NotPaused,
    /// The container ended during the command; for `create`, with the container's process, or 0 if it did not exist yet.
    Lost(i32),
    /// Anything else.
    Other(String),
}

/// A finished command.
#[derive(Clone, Debug)]
pub struct Call {
    /// The client that gave it. A client gives one command after the other.
    pub client: usize,
    /// The command.
    pub verb: Verb,
    /// When it began and ended, in any unit.
    pub span: (u64, u64),
    /// Its outcome.
    pub outcome: Outcome,
}

impl Call {
    /// Whether the command changes nothing, so that no other command depends on it.
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
    /// Being created by this client.
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
    /// It was killed, and may die at any time.
    dying: bool,
    /// How many containers of this name have existed.
    generation: u32,
    pid: i32,
}

/// An atomic step of a command: its whole remaining effect, or a part, after which it remembers a generation.
type Step = (Model, Option<u32>);

impl Model {
    const ABSENT: Self = Self { phase: Phase::Absent, paused: false, dying: false, generation: 0, pid: 0 };

    fn is_alive(self) -> bool {
        matches!(self.phase, Phase::Created | Phase::Running)
    }

    /// The container dead or about to die, for a command that reports that it has ended.
    fn ended(self) -> Option<Self> {
        let gone = Self { phase: Phase::Dead, paused: false, dying: false, ..self };
        match self.phase {
            Phase::Dead => Some(self),
            _ if self.is_alive() && self.dying => Some(gone),
            _ => None,
        }
    }

    /// The container when it dies: killing a paused container resumes it.
    fn thawed(self) -> Option<Self> {
        (self.dying && self.paused).then_some(Self { paused: false, ..self })
    }

    fn removed(self) -> Self {
        Self { phase: Phase::Absent, paused: false, dying: false, pid: 0, ..self }
    }

    /// All steps that a command with this outcome may take now. Empty if the outcome is impossible.
    fn steps(self, call: &Call, remembered: Option<u32>) -> Vec<Step> {
        use Outcome::*;
        let alive = self.is_alive();
        let done = |holds: bool, next: Self| if holds { vec![(next, None)] } else { Vec::new() };
        let part = |holds: bool, next: Self| if holds { vec![(next, Some(self.generation))] } else { Vec::new() };
        // `create` makes a directory before it locks it: others take it for an abandoned one.
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
                    // Its directory was taken for an abandoned one, and it makes another.
                    (Phase::Absent, Some(_)) => part(true, making),
                    _ => Vec::new(),
                }
            }
            // It was seen when it was ready, killed, and removed again by its creator.
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
            // Or its directory was taken for an abandoned one, and another client has one now.
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
                // It dies first, which other commands see.
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

/// The progress of each client: its next command, and how much of it was done.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Progress {
    next: Vec<(usize, Option<u32>)>,
    model: Model,
}

/// Looks for an order. The error contains the history and the longest explained part.
///
/// # Errors
/// No order exists.
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
            // A command cannot take effect before one that had ended when it began.
            let Some(call) = pending(client).filter(|call| call.span.0 <= over) else { continue };
            let (at, remembered) = progress.next[client];
            let thawed = progress.model.thawed().into_iter().flat_map(|model| model.steps(call, remembered));
            let steps: Vec<Step> = progress.model.steps(call, remembered).into_iter().chain(thawed).collect();
            // A command that changes nothing may take effect now: any order with it later has an equivalent one with it here.
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
