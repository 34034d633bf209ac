/* A store's URL for people: no secret in it, and a URL again, since tools find the store by it. */
#include "persist/store.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

static void assert_shown(const char *url, const char *expected)
{
    char shown[512];

    hf_store_display_url(url, shown, sizeof(shown));
    assert_string_equal(shown, expected);
}

static void the_path_of_sqlite(void **state)
{
    (void)state;
    assert_shown("sqlite:/var/lib/holdfast.db", "sqlite:/var/lib/holdfast.db");
}

static void no_secret_is_shown(void **state)
{
    (void)state;
    assert_shown("postgresql://gate:s3cret@db.example:5433/quota?sslmode=require&sslpassword=other",
                 "postgresql://gate@db.example:5433/quota");
    assert_shown("host=db.example user=gate password=s3cret dbname=quota",
                 "postgresql://gate@db.example/quota");
    assert_shown("postgresql://db.example/quota?user=gate&password=s3cret",
                 "postgresql://gate@db.example/quota");
}

/* Sockets, lists and IPv6 addresses have no place before the path. */
static void what_is_shown_is_a_url_again(void **state)
{
    static const char *const urls[][2] = {
        {"postgresql://gate:s3cret@/quota?host=/run/pg&port=5433",
         "postgresql://gate@/quota?host=/run/pg&port=5433"},
        {"postgresql://gate@%2Frun%2Fpg/quota", "postgresql://gate@/quota?host=/run/pg"},
        {"postgresql://a@h1:1,h2:2/quota", "postgresql://a@/quota?host=h1,h2&port=1,2"},
        {"host=::1 dbname=quota", "postgresql:///quota?host=::1"},
        {"dbname='a b&c/d' user='x@y:z' host=h", "postgresql://x%40y%3Az@h/a%20b%26c%2Fd"},
        {"port=5433", "postgresql:///?host=&port=5433"},
        {"postgresql:///quota", "postgresql:///quota"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(urls) / sizeof(urls[0]); i++) {
        assert_shown(urls[i][0], urls[i][1]);
        assert_shown(urls[i][1], urls[i][1]);
    }
}

static void what_is_no_url(void **state)
{
    (void)state;
    assert_shown("s3cret", "(not a store URL)");
    assert_shown("", "(not a store URL)");
}

/* Cut, never overrun. */
static void a_text_without_room(void **state)
{
    char shown[16];

    (void)state;
    memset(shown, 'x', sizeof(shown));
    hf_store_display_url("postgresql://gate@db.example/quota", shown, sizeof(shown));
    assert_string_equal(shown, "postgresql://ga");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_path_of_sqlite),           cmocka_unit_test(no_secret_is_shown),
        cmocka_unit_test(what_is_shown_is_a_url_again), cmocka_unit_test(what_is_no_url),
        cmocka_unit_test(a_text_without_room),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
