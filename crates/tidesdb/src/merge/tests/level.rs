use super::*;

fn random_walk(rng: &mut Rng, compare: &Comparator) {
    let mut run: Vec<_> = (0..rng.below(60))
        .map(|_| put(format!("{:02}", rng.below(40)).as_bytes(), rng.below(9) as u64))
        .collect();
    run.sort_by(|a, b| order(compare, a, b));
    let mut model = VecCursor::new(compare, run.clone().into());
    let mut cursor = LevelCursor::new(compare.clone(), cut(compare, &run, 1 + rng.below(8)));
    for _ in 0..200 {
        let target = format!("{:02}", rng.below(42)).into_bytes();
        let step = rng.below(16);
        match step {
            0 => (cursor.seek_to_first().unwrap(), model.seek_to_first().unwrap()),
            1 => (cursor.seek_to_last().unwrap(), model.seek_to_last().unwrap()),
            2 => (cursor.seek_for_prev(&target).unwrap(), model.seek_for_prev(&target).unwrap()),
            3 if model.valid() => (cursor.next_key().unwrap(), model.next_key().unwrap()),
            4 => {
                let seq = rng.below(10) as u64;
                (cursor.seek_version(&target, seq).unwrap(), model.seek_version(&target, seq).unwrap())
            }
            5..=9 if model.valid() => (cursor.next().unwrap(), model.next().unwrap()),
            10..=15 if model.valid() => (cursor.prev().unwrap(), model.prev().unwrap()),
            _ => (cursor.seek(&target).unwrap(), model.seek(&target).unwrap()),
        };
        assert_eq!(entry(&mut cursor), entry(&mut model));
    }
}

#[test]
fn a_level_cursor_behaves_like_a_cursor_over_one_table() {
    with_seeds(1000, |rng| random_walk(rng, &Comparator::bytewise()));
    with_seeds(200, |rng| random_walk(rng, &Comparator::reverse_bytewise()));
}

/// Counts how often tables are opened.
#[derive(Clone)]
struct Counted(VecTable, Arc<std::sync::atomic::AtomicUsize>);

impl LevelTable for Counted {
    type Cursor = VecCursor;
    fn smallest(&self) -> &[u8] {
        self.0.smallest()
    }
    fn largest(&self) -> &[u8] {
        self.0.largest()
    }
    fn cursor(&self) -> VecCursor {
        self.1.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
        self.0.cursor()
    }
}

#[test]
fn tables_are_opened_when_reached_and_reused() {
    let order = Comparator::bytewise();
    let opened = Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let tables: Vec<_> = ["b", "d", "f"]
        .iter()
        .map(|k| {
            Counted(
                VecTable::new(&order, vec![put(k.as_bytes(), 2), put(k.as_bytes(), 1)].into()),
                opened.clone(),
            )
        })
        .collect();
    let mut cursor = LevelCursor::new(order, Arc::<[_]>::from(tables));
    let opens = || opened.load(std::sync::atomic::Ordering::SeqCst);
    assert_eq!(opens(), 0);
    cursor.seek(b"c").unwrap();
    assert_eq!((cursor.key(), cursor.seq(), opens()), (b"d".as_slice(), 2, 1));
    cursor.seek(b"d").unwrap();
    cursor.next().unwrap();
    assert_eq!((cursor.seq(), opens()), (1, 1));
    cursor.next().unwrap();
    assert_eq!((cursor.key(), opens()), (b"f".as_slice(), 2));
    cursor.seek(b"g").unwrap();
    assert!(!cursor.valid());
    assert_eq!(opens(), 2);
}

#[test]
fn damage_in_a_table_is_not_skipped() {
    #[derive(Clone)]
    struct Bad(VecTable);
    impl LevelTable for Bad {
        type Cursor = VecCursor;
        fn smallest(&self) -> &[u8] {
            self.0.smallest()
        }
        fn largest(&self) -> &[u8] {
            self.0.largest()
        }
        fn cursor(&self) -> VecCursor {
            let mut cursor = self.0.cursor();
            cursor.fails_at = (self.0.smallest() == b"d").then_some(0);
            cursor
        }
    }
    let order = Comparator::bytewise();
    let tables: Vec<_> = ["b", "d", "f"]
        .iter()
        .map(|k| Bad(VecTable::new(&order, vec![put(k.as_bytes(), 1)].into())))
        .collect();
    let mut cursor = LevelCursor::new(order, Arc::<[_]>::from(tables));
    cursor.seek_to_first().unwrap();
    assert!(cursor.next().is_err());
    assert!(!cursor.valid());
    cursor.seek_to_last().unwrap();
    assert!(cursor.prev().is_err());
    assert!(!cursor.valid());
    assert!(cursor.seek(b"c").is_err());
    assert!(!cursor.valid());
    cursor.seek(b"e").unwrap();
    assert_eq!(cursor.key(), b"f");
}
