//! Two related families: users, and an index of their mail addresses. A batch changes both or neither.
//!
//! `cargo run -p tidesdb-engine --example batches_and_families`

use std::error::Error;

use tidesdb::{Compression, Db, Family, FamilyOptions, WriteBatch};

/// A table with an index that is always consistent.
struct Users {
    db: Db,
    by_name: Family,
    by_mail: Family,
}

impl Users {
    fn open(db: Db) -> tidesdb::Result<Self> {
        // Each family has its own keys, comparator and settings; they share one log, so a batch can span them.
        let by_name = db.family_or_create("users", FamilyOptions::default())?;
        let index = FamilyOptions::default().compression(Compression::None).filter_bits_per_key(14);
        let by_mail = db.family_or_create("users by mail", index)?;
        Ok(Self { db, by_name, by_mail })
    }

    fn set_mail(&self, name: &str, mail: &str) -> tidesdb::Result<()> {
        let mut batch = WriteBatch::new();
        if let Some(old) = self.by_name.get(name.as_bytes())? {
            batch.delete(&self.by_mail, &old)?;
        }
        batch.put(&self.by_name, name.as_bytes(), mail.as_bytes())?;
        batch.put(&self.by_mail, mail.as_bytes(), name.as_bytes())?;
        self.db.write(&mut batch)?; // all three operations or none, even if the power fails here
        Ok(())
    }

    fn who_has(&self, mail: &str) -> tidesdb::Result<Option<String>> {
        self.by_mail.get_map(mail.as_bytes(), |name| String::from_utf8_lossy(name).into_owned())
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let temp = tempfile::tempdir()?;
    let users = Users::open(Db::open(temp.path())?)?;

    users.set_mail("ann", "ann@example.org")?;
    users.set_mail("bob", "bob@example.org")?;
    users.set_mail("ann", "ann@example.com")?; // a new address

    for mail in ["ann@example.com", "ann@example.org", "bob@example.org"] {
        println!("{mail}: {}", users.who_has(mail)?.as_deref().unwrap_or("nobody"));
    }
    println!("families: {}", users.db.families().join(", "));

    let (table, index) = (users.by_name.iter()?.count(), users.by_mail.iter()?.count());
    if table != index {
        return Err(format!("{table} users, but {index} addresses").into());
    }
    Ok(())
}
