//! Tests that the checkers find violations.

use tidesdb_io::sim;

use super::*;
use crate::rng::Rng;
use crate::world::Config;

fn ring(next: &[u64]) -> Result<(), String> {
    whole(next.len() as u64, |n| next.get(n as usize).copied())
}

#[test]
fn the_ring_check_accepts_only_one_ring() {
    assert!(ring(&[1, 2, 3, 0]).is_ok());
    assert!(ring(&[2, 3, 1, 0]).is_ok());
    for broken in [&[1, 0, 3, 2][..], &[1, 2, 3, 3], &[1, 2, 1, 0], &[1, 2, 3, 4], &[0, 2, 3, 1]] {
        assert!(ring(broken).is_err(), "{broken:?}");
    }
    assert!(whole(3, |n| (n == 0).then_some(1)).is_err(), "a node is missing");
}

/// Runs a play on a healthy disk.
fn play(work: Work, seed: u64, turns: usize) -> (Shared, Counts) {
    let (env, _disk, _clock) = sim::env(seed);
    let promises = Shared::default();
    let config = Config { sync: tidesdb::SyncMode::None, ..Config::numbered(seed) };
    let mut player = Player::start(&env, config, work, seed, promises.clone()).unwrap();
    for turn in 0..turns {
        player.turn().unwrap_or_else(|e| panic!("seed {seed}, turn {turn}: {e}"));
    }
    (promises, player.end().unwrap())
}

#[test]
fn a_play_is_reproducible_and_covers_all_events() {
    for work in [Work::Bank, Work::Ring] {
        let (promises, counts) = play(work, 5, 1500);
        let (again, same) = play(work, 5, 1500);
        assert_eq!(promises.lock().commits, again.lock().commits);
        assert_eq!(counts, same);
        assert!(counts.commits > 100 && counts.conflicts > 10, "{work:?}: {counts:?}");
        assert!(counts.rolled_back > 5 && counts.undone > 30 && counts.views > 50, "{work:?}: {counts:?}");
    }
}

#[test]
fn broken_contents_are_found() {
    for work in [Work::Bank, Work::Ring] {
        let (promises, _) = play(work, 6, 600);
        let promises = promises.lock();
        let made = promises.commits.len();
        for commits in 1..=made {
            assert_eq!(judge::look(work, &promises.contents(commits), &promises), Ok(commits));
        }
        let mut rng = Rng::new(7);
        for n in 0..200 {
            let good = promises.contents(1 + rng.below(made as u64) as usize);
            let mut bad = good.clone();
            let (place, older) =
                promises.commits[rng.below(made as u64) as usize][rng.below(3) as usize].clone();
            let _ = if rng.one_in(4) { bad.remove(&place) } else { bad.insert(place, older) };
            assert_eq!(judge::look(work, &bad, &promises).is_err(), bad != good, "case {n}");
        }
        // The two halves of the last commit.
        let mut torn = promises.contents(made - 1);
        let (place, value) = promises.commits[made - 1][0].clone();
        if torn.insert(place, value.clone()) != Some(value) {
            assert!(judge::look(work, &torn, &promises).is_err());
        }
    }
}

#[test]
fn a_lost_commit_is_found() {
    let (env, disk, _clock) = sim::env(8);
    let promises = Shared::default();
    let config = Config { sync: tidesdb::SyncMode::Full, ..Config::numbered(8) };
    let mut player = Player::start(&env, config, Work::Bank, 8, promises.clone()).unwrap();
    for _ in 0..60 {
        player.turn().unwrap();
    }
    let early = disk.fork();
    let held = promises.lock().clone();
    while promises.lock().acked == held.acked {
        player.turn().unwrap();
    }
    let demand = Demand { everything: true, thorough: true };
    let on = |disk: &sim::SimDisk, promises: &Promises| {
        let (env, _disk, _clock) = sim::env_on(disk.fork(), 9);
        recovered(&env, &config, (Work::Bank, promises), demand)
    };
    assert_eq!(on(&early, &held), Ok(held.acked));
    let lost = on(&early, &promises.lock()).unwrap_err();
    assert!(lost.contains("lost acknowledged durable commits"), "{lost}");
}
