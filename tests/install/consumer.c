/* What a gateway does first: include the installed header, link the library, ask its version. Built as C and, by
 * the same text, as C++. */
#include <holdfast.h>
#include <stdio.h>
#include <string.h>

int main(int argc, char **argv)
{
    const char *version = holdfast_version();
    if (argc != 2 || strcmp(version, argv[1]) != 0) {
        fprintf(stderr, "consumer: the library says version '%s', expected '%s'\n", version,
                argc > 1 ? argv[1] : "(no argument)");
        return 1;
    }
    return 0;
}
