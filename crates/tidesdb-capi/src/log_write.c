/*
 * The implementation of tidesdb_log_write(), in C because stable Rust cannot define a function with variable arguments.
 * Rust exports the symbol and jumps here, see log.rs.
 */
#include <stdarg.h>
#include <stdio.h>

/* The data symbol of the library. It may be located in the program's own data. */
extern FILE *_tidesdb_log_file;

void tidesdb_capi_log_write(int level, const char *file, int line, const char *format, ...);

static FILE *log_file(void)
{
#ifdef _MSC_VER
    return *(FILE *volatile *)&_tidesdb_log_file; /* an acquire load, see /volatile:ms */
#else
    return __atomic_load_n(&_tidesdb_log_file, __ATOMIC_ACQUIRE);
#endif
}

void tidesdb_capi_log_write(int level, const char *file, int line, const char *format, ...)
{
    static const char *const names[] = {"DEBUG", "INFO", "WARN", "ERROR", "FATAL"};
    const char *name = level >= 0 && level <= 4 ? names[level] : "LOG";
    char text[4096];
    if (format == NULL) return;
    va_list args;
    va_start(args, format);
    int size = vsnprintf(text, sizeof text, format, args);
    va_end(args);
    if (size < 0) return;
    if (size >= (int)sizeof text) size = (int)sizeof text - 1;
    if (size > 0 && text[size - 1] == '\n') size--;
    FILE *to = log_file();
    fprintf(to == NULL ? stderr : to, "tidesdb %-5s %s:%d: %.*s\n", name, file == NULL ? "?" : file, line, size, text);
}
