//! A document store: JSON documents by name, found by author, by tag, and by author and year.
//!
//! `cargo run -p tidesdb-typed --features json --example documents`

use serde_json::{Value, json};
use tidesdb::Db;
use tidesdb_typed::{Error, IndexDefinition, Json, TableDefinition};

/// Documents without an author have no entry.
const BY_AUTHOR: IndexDefinition<Json<Value>, (String, u64)> = IndexDefinition::new("author", |doc, keys| {
    if let Some(author) = doc["author"].as_str() {
        keys.add((author, doc["year"].as_u64().unwrap_or(0)));
    }
});
/// One entry for each tag.
const BY_TAG: IndexDefinition<Json<Value>, String> = IndexDefinition::new("tag", |doc, keys| {
    for tag in doc["tags"].as_array().into_iter().flatten().filter_map(Value::as_str) {
        keys.add(tag);
    }
});
/// No two documents have the same number.
const BY_NUMBER: IndexDefinition<Json<Value>, u64> = IndexDefinition::unique("number", |doc, keys| {
    doc["number"].as_u64().into_iter().for_each(|n| keys.add(n))
});
const DOCUMENTS: TableDefinition<String, Json<Value>> =
    TableDefinition::new("documents").indexes(&[&BY_AUTHOR, &BY_TAG, &BY_NUMBER]);

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let dir = tempfile::tempdir()?;
    let db = Db::open(dir.path())?;
    let documents = DOCUMENTS.open(&db)?;
    documents
        .put("moby", &json!({"author": "Melville", "year": 1851, "number": 1, "tags": ["sea", "whale"]}))?;
    documents.put("typee", &json!({"author": "Melville", "year": 1846, "number": 2, "tags": ["sea"]}))?;
    documents.put("emma", &json!({"author": "Austen", "year": 1815, "number": 3}))?;

    println!("Melville, oldest first:");
    for row in documents.by(&BY_AUTHOR).prefix(("Melville",))? {
        let ((_, year), name, _) = row?;
        println!("  {year} {name}");
    }
    let early: Vec<_> = documents
        .by(&BY_AUTHOR)
        .range(("Melville", 0)..("Melville", 1850))?
        .map(|row| row.map(|(_, name, _)| name))
        .collect::<Result<_, _>>()?;
    println!("Melville before 1850: {early:?}");

    // A change moves the entries of the document; both are one commit.
    documents.update("typee", |doc| {
        doc.map(|mut doc| {
            doc["tags"] = json!(["island"]);
            doc
        })
    })?;
    let at_sea = documents.by(&BY_TAG).all("sea")?.count();
    println!("documents with the tag sea: {at_sea}");

    let copy = documents.put("copy", &json!({"number": 3}));
    println!("a second document 3: {}", copy.as_ref().err().ok_or("it was stored")?);
    if !matches!(copy, Err(Error::Duplicate { index: "number", .. })) || early != ["typee"] || at_sea != 1 {
        return Err("the answers are wrong".into());
    }

    documents.delete("moby")?;
    let whale = documents.by(&BY_TAG).get("whale")?;
    println!("the whale after its document is gone: {whale:?}");
    if whale.is_some() || documents.contains("moby")? {
        return Err("an index entry outlived its document".into());
    }
    db.close()?;
    Ok(())
}
