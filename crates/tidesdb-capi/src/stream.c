/*
 * Streams of log files: the part of stream.rs that needs the C library, whose calls differ between systems. A file is passed as the number by
 * which the system knows it, a descriptor or a handle, and belongs to the function that gets it.
 */
#ifdef __linux__
#define _GNU_SOURCE
#endif
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#ifdef _WIN32
#include <io.h>
#include <windows.h>
#else
#include <unistd.h>
#endif

FILE *tidesdb_capi_stream_new(intptr_t file);
int tidesdb_capi_stream_turn(FILE *stream, intptr_t file);
void tidesdb_capi_stream_rest(FILE *stream);

#ifdef _WIN32

/* This C library has no line buffers: it would keep lines back. */
#define BUFFERING _IONBF

/* Returns a descriptor of the C library for the file, or -1. */
static int descriptor_of(intptr_t file)
{
    int descriptor = _open_osfhandle(file, _O_APPEND);
    if (descriptor < 0) CloseHandle((HANDLE)file);
    return descriptor;
}

static int nowhere(void)
{
    return _open("NUL", _O_WRONLY | _O_APPEND | _O_BINARY | _O_NOINHERIT);
}

static FILE *stream_of(int descriptor) { return _fdopen(descriptor, "ab"); }

static void leave(int descriptor) { _close(descriptor); }

/* Makes `to` another number of what `from` is. Processes that this one starts do not get it. */
static int replace(int from, int to)
{
    if (_dup2(from, to) < 0) return 0;
    SetHandleInformation((HANDLE)_get_osfhandle(to), HANDLE_FLAG_INHERIT, 0);
    return 1;
}

static int number_of(FILE *stream) { return _fileno(stream); }

#else

#define BUFFERING _IOLBF

static int descriptor_of(intptr_t file) { return (int)file; }

static int nowhere(void) { return open("/dev/null", O_WRONLY | O_APPEND | O_CLOEXEC); }

static FILE *stream_of(int descriptor) { return fdopen(descriptor, "a"); }

static void leave(int descriptor) { close(descriptor); }

/* Makes `to` another number of what `from` is. Processes that this one starts do not get it. */
static int replace(int from, int to)
{
#if defined(__linux__) || defined(__FreeBSD__)
    return dup3(from, to, O_CLOEXEC) >= 0;
#else
    return dup2(from, to) >= 0 && fcntl(to, F_SETFD, FD_CLOEXEC) >= 0;
#endif
}

static int number_of(FILE *stream) { return fileno(stream); }

#endif

static int turn(FILE *stream, int descriptor)
{
    if (descriptor < 0) return 0;
    fflush(stream);
    int turned = replace(descriptor, number_of(stream));
    leave(descriptor);
    return turned;
}

/* Returns a stream that appends to the file, line by line; NULL if there are no descriptors left. */
FILE *tidesdb_capi_stream_new(intptr_t file)
{
    int descriptor = descriptor_of(file);
    if (descriptor < 0) return NULL;
    FILE *stream = stream_of(descriptor);
    if (stream == NULL) {
        leave(descriptor);
        return NULL;
    }
    setvbuf(stream, NULL, BUFFERING, 0);
    return stream;
}

/* Redirects the stream to the file. Buffered output goes to the old one. Returns 0 if that fails. */
int tidesdb_capi_stream_turn(FILE *stream, intptr_t file) { return turn(stream, descriptor_of(file)); }

/* Redirects the stream to nowhere. If that fails, it keeps its file. */
void tidesdb_capi_stream_rest(FILE *stream) { turn(stream, nowhere()); }
