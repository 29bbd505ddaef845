//! The committed index is durable before anything is applied by it, and openraft does not wait for that.

use super::*;
use std::sync::Mutex;

/// Keeps what a power failure would leave at the moment of each `apply`.
#[derive(Clone)]
struct Looks(Arc<SimDisk>, Arc<Mutex<Vec<SimDisk>>>);

impl Application<Types> for Looks {
    fn apply(&self, _: &mut State<'_>, _: (String, String)) -> tidesdb::Result<Option<String>> {
        self.1.lock().unwrap().push(self.0.crash_image(&Image::SYNCED, 1));
        Ok(None)
    }

    fn blank(&self) -> Option<String> {
        None
    }
}

#[tokio::test]
async fn what_is_applied_is_durably_committed() {
    let node = Node::new();
    let stores = node.stores();
    let looks = Looks(Arc::clone(&node.disk), Arc::default());
    let (mut log, mut machine) = (stores.log_store::<Types>(1), stores.state_machine(1, looks.clone()));
    for index in 1..=20 {
        log.save_committed(Some(id(1, index))).await.unwrap();
        machine.apply([put(index, "a", "1")]).await.unwrap();
        let left = Node::on(looks.1.lock().unwrap().pop().unwrap());
        assert_eq!(left.open().0.read_committed().await.unwrap(), Some(id(1, index)));
    }
    // An index that did not become durable ends the state machine, before it has applied anything.
    node.disk.inject(Fault::errno(errno::EIO).on(sim::OpSet::SYNCS).forever());
    log.save_committed(Some(id(1, 21))).await.unwrap();
    let error = machine.apply([put(21, "a", "1")]).await.unwrap_err();
    assert!(error.to_string().contains("Write StateMachine"), "{error}");
    assert!(looks.1.lock().unwrap().is_empty());
}

/// A `Raft` that was shut down may still save an index, and apply: neither disturbs the stores that were made since.
#[tokio::test]
async fn stores_of_an_earlier_raft_take_and_give_no_committed_index() {
    let node = Node::new();
    let stores = node.stores();
    let (mut old_log, mut old_machine) = (stores.log_store::<Types>(1), stores.state_machine(1, Kv));
    for machine_first in [false, true] {
        old_log.save_committed(Some(id(1, 1))).await.unwrap(); // may be refused when its turn comes
        let looks = Looks(Arc::clone(&node.disk), Arc::default());
        let made = machine_first.then(|| stores.state_machine(1, looks.clone()));
        let mut log = stores.log_store::<Types>(1);
        let mut machine = made.unwrap_or_else(|| stores.state_machine(1, looks.clone()));
        machine.apply([put(1, "a", "1")]).await.unwrap();
        for index in 2..20 {
            log.save_committed(Some(id(1, index))).await.unwrap();
            assert!(old_log.save_committed(Some(id(1, 99))).await.is_err());
            let entry = |value| [put(index, "a", value)];
            let (old, new) = tokio::join!(old_machine.apply(entry("1")), machine.apply(entry("2")));
            assert!(old.is_err() && new.is_ok());
            let left = Node::on(looks.1.lock().unwrap().pop().unwrap());
            assert_eq!(left.open().0.read_committed().await.unwrap(), Some(id(1, index)));
        }
        (old_log, old_machine) = (stores.log_store(1), stores.state_machine(1, Kv));
    }
}

/// openraft lets a leader that starts again go on in its term, and trusts its committed index.
#[tokio::test]
async fn a_leader_that_starts_again_is_elected_again() {
    let node = Node::new();
    let (mut log, _) = node.open();
    log.save_vote(&Vote::new_committed(3, 1)).await.unwrap();
    let (mut after, _) = node.after_power_failure().open();
    assert_eq!(after.read_vote().await.unwrap(), Some(Vote::new(3, 1)));
}
