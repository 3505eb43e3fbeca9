//! Plays many worlds of the simulation, or one again: `cargo xtask simulate [http|http2|native] [--seeds N] [--from N]
//! [--seed N] [--jobs N] [--all]`.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Instant;

use sekisho_simulation::{RunStats, World, check};

use crate::Complaints;

/// How many worlds of each kind are played by default.
const SEEDS: u64 = 10_000;

/// What was asked for.
struct Asked {
    worlds: Vec<World>,
    from: u64,
    seeds: u64,
    jobs: usize,
    /// Go on after a failure, and name each in one line.
    is_all: bool,
}

/// Plays what the arguments say.
pub(crate) fn run(arguments: &[&str]) -> Result<Complaints, String> {
    let asked = read(arguments)?;
    // A panic in an engine is a violation like any other: it is reported with its world.
    std::panic::set_hook(Box::new(|_| {}));
    Ok(asked.worlds.iter().flat_map(|world| asked.play(*world)).collect())
}

fn read(arguments: &[&str]) -> Result<Asked, String> {
    let jobs = thread::available_parallelism().map_or(1, usize::from);
    let mut asked = Asked { worlds: Vec::new(), from: 0, seeds: SEEDS, jobs, is_all: false };
    let mut words = arguments.iter().copied();
    while let Some(word) = words.next() {
        let mut number = || {
            let text = words.next().ok_or(format!("{word} wants a number"))?;
            text.replace('_', "")
                .parse::<u64>()
                .map_err(|_| format!("{word} wants a number, not \"{text}\""))
        };
        match word {
            "http" => asked.worlds.push(World::Http),
            "http2" => asked.worlds.push(World::Http2),
            "native" => asked.worlds.push(World::Native),
            "--seeds" => asked.seeds = number()?,
            "--from" => asked.from = number()?,
            "--seed" => (asked.from, asked.seeds) = (number()?, 1),
            "--jobs" => asked.jobs = number()?.clamp(1, 64) as usize,
            "--all" => asked.is_all = true,
            _ => return Err(format!("\"{word}\" is not understood")),
        }
    }
    if asked.worlds.is_empty() {
        asked.worlds = vec![World::Http, World::Http2, World::Native];
    }
    Ok(asked)
}

impl Asked {
    fn play(&self, world: World) -> Complaints {
        let (next, is_over) = (AtomicU64::new(self.from), AtomicBool::new(false));
        let (stats, failures) = (Mutex::new(RunStats::default()), Mutex::new(Vec::new()));
        #[expect(
            clippy::disallowed_methods,
            reason = "how long it took is for people, and decides nothing"
        )]
        let began = Instant::now();
        thread::scope(|scope| {
            for _ in 0..self.jobs {
                scope.spawn(|| {
                    let mut own = RunStats::default();
                    while !is_over.load(Ordering::Relaxed) {
                        let seed = next.fetch_add(1, Ordering::Relaxed);
                        if seed - self.from >= self.seeds {
                            break;
                        }
                        match check(world, seed, None) {
                            Ok(more) => own.add(more),
                            Err(failure) => {
                                let text = failure.to_string();
                                let line = text.lines().next().unwrap_or_default().to_owned();
                                is_over.store(!self.is_all, Ordering::Relaxed);
                                let told = if self.is_all { line } else { text };
                                failures.lock().expect("not poisoned").push(told);
                            }
                        }
                    }
                    stats.lock().expect("not poisoned").add(own);
                });
            }
        });
        let stats = stats.into_inner().expect("not poisoned");
        println!("{world}: {stats}, {:.1} s", began.elapsed().as_secs_f64());
        failures.into_inner().expect("not poisoned")
    }
}
