#![allow(clippy::disallowed_methods, reason = "x")]
use tidesdb_memtable::*;
fn main(){ let m=Memtable::new(KeyOrder::Bytewise,MapKind::Tree,64<<20,1); let seq=std::env::args().nth(1).is_some();
 let mut s=88172645463325252u64; for i in 0..448000u64 { s^=s<<13;s^=s>>7;s^=s<<17; let k= if seq {format!("{i:016}")} else {format!("{s:016x}")}; m.insert(k.as_bytes(),Version{seq:i,kind:0,expiry:0},&[7;100]).unwrap(); }
 let mut c=m.cursor(); let t=rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime); let mut b=0usize; for _ in 0..10 { c.seek_to_first(); while c.valid(){ let e=c.entry(); b+=e.key[15] as usize+e.value.len(); c.next(); } }
 let u=rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
 println!("walk {:.1} {b}", ((u.tv_sec-t.tv_sec) as f64*1e9+(u.tv_nsec-t.tv_nsec) as f64)/4480000.0); }
