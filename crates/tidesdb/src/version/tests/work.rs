//! The work of an open is linear in the manifest, whatever its bytes are: names, keys and bounds of users are among them.

use super::super::format::{Mark, PAGE, PAYLOAD_BYTES_MAX, RECORD_HEADER_BYTES, RECORDS_AT, page_up};
use super::*;

/// A torn append of a long record, in which each page looks like the header of a record that reaches to the end of the file,
/// or is as long as a record may be.
#[test]
fn a_torn_append_of_chosen_bytes_is_searched_in_linear_work() {
    for kib in [128u64, 1024] {
        let (env, disk, _) = sim::env(3);
        let set = create(&env);
        install(&set, [create_family(1, "family")]).unwrap();
        drop(set);
        let name = disk.file_names(DB).unwrap().into_iter().find(|name| name.ends_with(".manifest")).unwrap();
        let path = format!("{DB}/{name}");
        let mut file = disk.read_file(&path).unwrap();
        let salt = file[16..32].try_into().unwrap();
        let marks = (PAGE..RECORDS_AT).step_by(PAGE as usize);
        let marks = marks.filter_map(|at| Mark::decode(&file[at as usize..][..PAGE as usize], &salt, at));
        let newest = marks.max_by_key(|mark| mark.number).unwrap();
        let (begin, end) = (page_up(newest.end), page_up(newest.end) + (kib << 10));
        file.resize(end as usize, 0);
        for at in (begin..end).step_by(PAGE as usize) {
            let page = &mut file[at as usize..][..PAGE as usize];
            let payload = ((end - at) as usize - RECORD_HEADER_BYTES).min(PAYLOAD_BYTES_MAX);
            page[4..8].copy_from_slice(&(payload as u32).to_le_bytes());
            page[8..16].copy_from_slice(&(newest.number + 2).to_le_bytes());
            page[PAGE as usize - 1] = 1;
        }
        disk.write_file(&path, &file).unwrap();
        let work = disk.work(|| assert_eq!(open(&env).1.torn_bytes, kib << 10)) as f64 / file.len() as f64;
        println!("{kib} KiB: {work:.1} bytes are read and checksummed for each byte of the manifest");
        assert!(work <= 12.0, "{work:.1} bytes for each byte of the manifest");
    }
}
