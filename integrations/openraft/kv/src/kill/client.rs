//! The clients: they read, write and compare keys through whatever node answers, and record what they see.

use rand::rngs::StdRng;
use rand::seq::SliceRandom;
use rand::{Rng, SeedableRng};
use reqwest::{Response, StatusCode};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tidesdb_openraft_kv::Answer;
use tidesdb_openraft_kv::history::{Operation, Recorder, Value};
use tidesdb_openraft_kv::server::{Comparison, NotLeader};

/// How long a client waits for an answer.
const PATIENCE: Duration = Duration::from_secs(1);

/// What all clients of a round share.
pub(crate) struct Workload {
    /// Addresses of the nodes that may answer.
    pub(crate) nodes: Mutex<BTreeMap<u64, String>>,
    pub(crate) keys: Vec<(String, Recorder)>,
    pub(crate) next_value: AtomicU64,
    pub(crate) stop: AtomicBool,
}

/// A node that did not answer as hoped.
enum Failure {
    /// The request had no effect.
    Refused,
    Unknown,
}

pub(crate) struct Client {
    workload: Arc<Workload>,
    http: reqwest::Client,
    random: StdRng,
    leader: Option<u64>,
}

impl Client {
    pub(crate) fn new(workload: Arc<Workload>, seed: u64) -> Self {
        let http = reqwest::Client::builder().timeout(PATIENCE).build().expect("a client without TLS");
        Self { workload, http, random: StdRng::seed_from_u64(seed), leader: None }
    }

    /// Works until it is stopped.
    pub(crate) async fn run(mut self) {
        let mut seen: Vec<Option<Value>> = vec![None; self.workload.keys.len()];
        while !self.workload.stop.load(Ordering::Relaxed) {
            let at = self.random.gen_range(0..seen.len());
            let (key, recorder) = self.workload.keys[at].clone();
            let value = self.workload.next_value.fetch_add(1, Ordering::Relaxed);
            let found = match self.random.gen_range(0..10) {
                0..5 => self.read(&key, &recorder).await,
                5..8 => self.write(&key, &recorder, value).await,
                _ => self.swap(&key, &recorder, seen[at], value).await,
            };
            match found {
                Ok(found) => seen[at] = found,
                Err(_) => tokio::time::sleep(Duration::from_millis(self.random.gen_range(5..40))).await,
            }
            tokio::time::sleep(Duration::from_millis(self.random.gen_range(0..10))).await;
        }
    }

    /// Reads `key` until a node answers, or `tries` are over.
    pub(crate) async fn read_at_last(&mut self, key: &str, recorder: &Recorder, tries: usize) -> bool {
        for _ in 0..tries {
            if self.read(key, recorder).await.is_ok() {
                return true;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        false
    }

    async fn read(&mut self, key: &str, recorder: &Recorder) -> Result<Option<Value>, Failure> {
        let url = self.url(&format!("kv/{key}")).ok_or(Failure::Refused)?;
        let running = recorder.call();
        // A read without an answer has no effect, whatever became of it.
        let response = self.answer(self.http.get(url).send().await).await?;
        let found = match response.status() {
            StatusCode::NOT_FOUND => None,
            _ => response.text().await.map_err(|_| Failure::Unknown)?.parse().ok(),
        };
        running.done(Operation::Read(found));
        Ok(found)
    }

    async fn write(
        &mut self,
        key: &str,
        recorder: &Recorder,
        value: Value,
    ) -> Result<Option<Value>, Failure> {
        let url = self.url(&format!("kv/{key}")).ok_or(Failure::Refused)?;
        let running = recorder.call();
        let sent = self.http.put(url).body(value.to_string()).send().await;
        match self.answer(sent).await {
            Ok(_) => {
                running.done(Operation::Write(value));
                Ok(Some(value))
            }
            Err(failure) => {
                if matches!(failure, Failure::Unknown) {
                    running.unknown(Operation::Write(value));
                }
                Err(failure)
            }
        }
    }

    async fn swap(
        &mut self,
        key: &str,
        recorder: &Recorder,
        expected: Option<Value>,
        value: Value,
    ) -> Result<Option<Value>, Failure> {
        let url = self.url(&format!("cas/{key}")).ok_or(Failure::Refused)?;
        let body = Comparison { expected: expected.map(|value| value.to_string()), value: value.to_string() };
        let running = recorder.call();
        let sent = self.http.post(url).json(&body).send().await;
        let answer = match self.answer(sent).await {
            Ok(response) => response.json::<Answer>().await.map_err(|_| Failure::Unknown),
            Err(failure) => Err(failure),
        };
        match answer {
            Ok(Answer { done: true, .. }) => {
                running.done(Operation::Swap(expected, value));
                Ok(Some(value))
            }
            Ok(Answer { done: false, found }) => {
                let found = found.and_then(|value| value.parse().ok());
                running.done(Operation::Read(found));
                Ok(found)
            }
            Err(failure) => {
                if matches!(failure, Failure::Unknown) {
                    running.unknown(Operation::MaybeSwap(expected, value));
                }
                Err(failure)
            }
        }
    }

    /// Returns the address of a path at the leader, or at any node.
    fn url(&mut self, path: &str) -> Option<String> {
        let nodes = self.workload.nodes.lock().unwrap_or_else(PoisonError::into_inner);
        let all: Vec<&String> = nodes.values().collect();
        let known = self.leader.and_then(|leader| nodes.get(&leader));
        let address = known.or_else(|| all.choose(&mut self.random).copied())?;
        Some(format!("http://{address}/{path}"))
    }

    /// Returns a success. After anything else the next request goes elsewhere.
    async fn answer(&mut self, sent: reqwest::Result<Response>) -> Result<Response, Failure> {
        let response = match sent {
            Ok(response) => response,
            Err(e) => {
                self.leader = None;
                return Err(if e.is_connect() { Failure::Refused } else { Failure::Unknown });
            }
        };
        match response.status() {
            StatusCode::MISDIRECTED_REQUEST => {
                let named = response.json::<NotLeader>().await;
                self.leader = named.ok().and_then(|named| named.leader);
                Err(Failure::Refused)
            }
            status if status.is_success() || status == StatusCode::NOT_FOUND => Ok(response),
            _ => {
                self.leader = None;
                Err(Failure::Unknown)
            }
        }
    }
}
