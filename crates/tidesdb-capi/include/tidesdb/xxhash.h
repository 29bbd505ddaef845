/*
 * xxHash, for programs that include it by this name. This is the system's <xxhash.h>: TidesDB contains no copy of it.
 */
#ifndef TIDESDB_XXHASH_H
#define TIDESDB_XXHASH_H

#if defined(__has_include)
#if !__has_include(<xxhash.h>)
#error "tidesdb/xxhash.h needs <xxhash.h>: install libxxhash-dev (Debian, Ubuntu), xxhash-devel (Fedora) or xxhash (Arch, Homebrew)"
#endif
#endif

#include <xxhash.h>

#ifndef XXH_VERSION_NUMBER
#error "<xxhash.h> is not the header of xxHash: pass the parent folder of tidesdb/ to the compiler, not tidesdb/ itself"
#endif

#endif
