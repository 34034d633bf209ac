/* The log against the receipts: each answered operation exactly once, each unanswered one of a killed process once or not at all. */
#include "tests/stress/account.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* One id: what the log knows, and what the store has. */
struct account {
    uint64_t id;
    /* log: answered so, answered nothing */
    uint32_t reserved, reserved_lost;
    uint32_t extended, extended_lost;
    uint32_t dispatched;
    uint32_t settled, late, disputed, settle_lost;
    uint32_t released, release_lost;
    uint32_t expired;
    uint32_t replays;
    uint8_t settle_variant; /* of the settlement that was answered */
    uint64_t made_ms;
    uint64_t first_tokens, first_cost; /* first answer */
    uint64_t replay_tokens, replay_cost;
    uint64_t most_tokens, most_cost; /* totals answered last */
    /* store */
    uint32_t reservations, conflicts, extend_calls;
    uint32_t settlements, lates, disputes, disputes_late, releases, expiries, retentions;
    int64_t held[3];
    int64_t charged[3];
    uint64_t row_tokens, row_cost; /* of the reservation */
    uint64_t window_ms;
    uint64_t closed_tokens, closed_cost; /* held when it closed */
    uint64_t rises; /* micros that came above an admission: overage and what was charged late */
};

/* One minute of one team: what was admitted into it stays within limit, credit and overdraft. */
struct minute {
    uint64_t key; /* 0: free */
    int64_t charged;
    uint64_t rises;
    uint64_t credit;
    uint64_t credits;
    uint64_t befores; /* sum of credit_before_micros */
};

struct accounts {
    struct stress_board *board;
    struct account *all;
    uint32_t mask;
    struct minute *minutes;
    uint32_t minutes_mask;
    uint64_t reaped_lost; /* passes of the reaper that were cut off */
    uint64_t expiries;
    uint64_t expiries_told;
    uint64_t credits, credits_lost, credit_rows;
};

static struct account *account_of(struct accounts *accounts, uint64_t id)
{
    uint32_t at = (uint32_t)stress_mix(id, 3) & accounts->mask;

    while (accounts->all[at].id != 0 && accounts->all[at].id != id) {
        at = (at + 1) & accounts->mask;
    }
    accounts->all[at].id = id;
    return &accounts->all[at];
}

static struct minute *minute_of(struct accounts *accounts, uint32_t tenant_idx, char team, uint64_t ms)
{
    uint64_t key = ((ms / 60000) << 20 | (uint64_t)tenant_idx << 8 | (uint8_t)team) + 1;
    uint32_t at = (uint32_t)stress_mix(key, 5) & accounts->minutes_mask;

    while (accounts->minutes[at].key != 0 && accounts->minutes[at].key != key) {
        at = (at + 1) & accounts->minutes_mask;
    }
    accounts->minutes[at].key = key;
    return &accounts->minutes[at];
}

/* ---- the log --------------------------------------------------------------------------------------------------- */

static void take_reserve(struct accounts *accounts, struct account *account, const struct stress_rec *rec)
{
    if (rec->answered == 0) {
        account->reserved_lost++;
    } else if (rec->rc == HOLDFAST_OK && rec->replayed == 0) {
        account->reserved++;
        account->made_ms = rec->made_ms;
        account->first_tokens = rec->tokens;
        account->first_cost = rec->cost;
    } else if (rec->rc == HOLDFAST_OK) {
        account->replays++;
        account->replay_tokens = rec->tokens;
        account->replay_cost = rec->cost;
    } else if (rec->reason == HOLDFAST_REASON_KEY_BUDGET || rec->reason == HOLDFAST_REASON_TEAM_SHARE ||
               rec->reason == HOLDFAST_REASON_TENANT_TOTAL) {
        accounts->board->refused++;
    }
}

static void take_settle(struct account *account, const struct stress_rec *rec)
{
    if (rec->answered == 0) {
        account->settle_lost++;
    } else if (rec->rc == HOLDFAST_OK && rec->replayed == 0) {
        account->settled += rec->late == 0;
        account->late += rec->late != 0;
        account->settle_variant = rec->variant;
    } else if (rec->rc == HOLDFAST_REFUSED && rec->reason == HOLDFAST_REASON_OVERAGE && rec->replayed == 0) {
        account->disputed++;
    }
}

static void take_rec(struct accounts *accounts, const struct stress_rec *rec)
{
    bool ok = rec->answered != 0 && rec->rc == HOLDFAST_OK;
    struct account *account = NULL;

    accounts->board->unanswered[rec->op] += rec->answered == 0;
    accounts->board->answered[rec->op] += rec->answered;
    if (rec->op == STRESS_REAP) {
        accounts->reaped_lost += rec->answered == 0;
        return;
    }
    if (rec->op == STRESS_CREDIT) {
        accounts->credits += ok;
        accounts->credits_lost += rec->answered == 0;
        return;
    }
    account = account_of(accounts, rec->id);
    switch (rec->op) {
    case STRESS_RESERVE:
        take_reserve(accounts, account, rec);
        break;
    case STRESS_EXTEND:
        account->extended += ok;
        account->extended_lost += rec->answered == 0;
        account->most_tokens = ok && rec->tokens > account->most_tokens ? rec->tokens : account->most_tokens;
        account->most_cost = ok && rec->cost > account->most_cost ? rec->cost : account->most_cost;
        break;
    case STRESS_DISPATCH:
        account->dispatched += ok;
        break;
    case STRESS_SETTLE:
        take_settle(account, rec);
        break;
    case STRESS_RELEASE:
        account->released += ok && rec->replayed == 0;
        account->release_lost += rec->answered == 0;
        break;
    default:
        account->expired++;
        accounts->expiries_told++;
    }
}

/* ---- the store -------------------------------------------------------------------------------------------------- */

static void take_credit(struct accounts *accounts, const struct hf_receipt *row)
{
    uint32_t tenant_idx = (uint32_t)strtoul(row->tenant.bytes + 1, NULL, 10);
    struct minute *minute = minute_of(accounts, tenant_idx, 'a', row->window_ms);

    accounts->credit_rows++;
    if (row->credit_micros != 1 || row->credit_after_micros != row->credit_before_micros + 1) {
        stress_wrong(accounts->board, "a credit by one goes from %" PRIu64 " to %" PRIu64,
                     row->credit_before_micros, row->credit_after_micros);
    }
    minute->credits++;
    minute->befores += row->credit_before_micros;
    minute->credit = row->credit_after_micros > minute->credit ? row->credit_after_micros : minute->credit;
}

static void take_kind(struct accounts *accounts, struct account *account, const struct hf_receipt *row)
{
    switch (row->kind) {
    case HF_RECEIPT_RESERVATION:
        account->reservations++;
        account->conflicts += row->conflict;
        account->row_tokens = row->hold_tokens;
        account->row_cost = row->hold_cost_micros;
        account->window_ms = row->window_ms;
        return;
    case HF_RECEIPT_EXTENSION:
        account->extend_calls += (uint32_t)row->extend_calls;
        return;
    case HF_RECEIPT_SETTLEMENT:
        account->settlements++;
        break;
    case HF_RECEIPT_RELEASE:
        account->releases++;
        break;
    case HF_RECEIPT_EXPIRY:
        account->expiries++;
        accounts->expiries++;
        break;
    case HF_RECEIPT_RETENTION:
        account->retentions++;
        accounts->expiries++;
        break;
    case HF_RECEIPT_DISPUTE:
        account->disputes += row->late != 1;
        account->disputes_late += row->late == 1;
        break;
    case HF_RECEIPT_LATE:
        account->lates++;
        account->rises += row->charged_cost_micros > 0 ? (uint64_t)row->charged_cost_micros : 0;
        break;
    default:
        stress_wrong(accounts->board, "a receipt of kind %d", (int)row->kind);
    }
    if (row->kind == HF_RECEIPT_DISPUTE && row->charged_cost_micros > 0 && row->late == 1) {
        account->rises += (uint64_t)row->charged_cost_micros;
    }
    if (row->kind == HF_RECEIPT_SETTLEMENT && row->overage_cost_micros != HF_UNKNOWN) {
        account->rises += row->overage_cost_micros;
    }
    account->closed_tokens = row->hold_tokens;
    account->closed_cost = row->hold_cost_micros;
}

static int take_row(void *ctx, const struct hf_receipt *row)
{
    struct accounts *accounts = ctx;
    uint64_t id = 0;

    if (row->kind == HF_RECEIPT_CREDIT) {
        take_credit(accounts, row);
        return 0;
    }
    if (!hf_receipt_in_family(row->kind)) {
        return 0;
    }
    if (!stress_id_parse(row->id.bytes, &id)) {
        stress_wrong(accounts->board, "a receipt of '%.40s', which nobody made", row->id.bytes);
        return 0;
    }
    struct account *account = account_of(accounts, id);

    account->held[0] += row->held_invocations;
    account->held[1] += row->held_tokens;
    account->held[2] += row->held_cost_micros;
    account->charged[0] += row->charged_invocations;
    account->charged[1] += row->charged_tokens;
    account->charged[2] += row->charged_cost_micros;
    take_kind(accounts, account, row);
    return 0;
}

/* ---- one reservation --------------------------------------------------------------------------------------------- */

static void expect_between(struct accounts *accounts, const struct account *account, const char *what,
                           uint64_t stored, uint64_t told, uint64_t lost)
{
    char text[32];

    if (stored < told || stored > told + lost) {
        stress_id_text(account->id, text);
        stress_wrong(accounts->board,
                     "%s: %" PRIu64 " %s in the store, %" PRIu64 " were answered, %" PRIu64 " lost", text,
                     stored, what, told, lost);
    }
}

static void expect_equal(struct accounts *accounts, const struct account *account, const char *what,
                         uint64_t stored, uint64_t told)
{
    char text[32];

    if (stored != told) {
        stress_id_text(account->id, text);
        stress_wrong(accounts->board, "%s: %s is %" PRIu64 " in the store, the log says %" PRIu64, text, what,
                     stored, told);
    }
}

static void check_counts(struct accounts *accounts, const struct account *a)
{
    uint32_t settles = a->settlements + a->lates + a->disputes + a->disputes_late;

    expect_between(accounts, a, "reservations", a->reservations, a->reserved, a->reserved_lost);
    expect_between(accounts, a, "settlements", a->settlements, a->settled, a->settle_lost);
    expect_between(accounts, a, "late settlements", a->lates, a->late, a->settle_lost);
    expect_between(accounts, a, "disputes", a->disputes + a->disputes_late, a->disputed, a->settle_lost);
    expect_between(accounts, a, "settles", settles, a->settled + a->late + a->disputed, a->settle_lost);
    expect_between(accounts, a, "releases", a->releases, a->released, a->release_lost);
    expect_between(accounts, a, "extend calls", a->extend_calls, 0, a->extended + a->extended_lost);
    /* Each reservation is closed once; what had expired is settled late once at most. */
    expect_equal(accounts, a, "closings",
                 a->settlements + a->releases + a->disputes + a->expiries + a->retentions, a->reservations);
    expect_between(accounts, a, "late closings", a->lates + a->disputes_late, 0, a->expiries + a->retentions);
    /* The pass that reaped it may have been killed before it said so: all of these are counted together below. */
    expect_between(accounts, a, "expiries told", a->expired, 0, a->expiries + a->retentions);
    expect_between(accounts, a, "conflicts", a->conflicts, 0, a->reservations == 0 ? 0 : a->reservations - 1);
    for (int i = 0; i < 3; i++) {
        expect_equal(accounts, a, "what is held after all", (uint64_t)a->held[i], 0);
    }
}

/* What must be charged, from the log alone. False: something of it was lost with a process. */
static bool expected_charge(const struct accounts *accounts, const struct account *a, uint64_t charge[3])
{
    struct stress_request request;
    struct holdfast_usage usage;
    uint64_t tokens = a->first_tokens > a->most_tokens ? a->first_tokens : a->most_tokens;
    uint64_t cost = a->first_cost > a->most_cost ? a->first_cost : a->most_cost;

    if (a->reserved != 1 || a->reservations != 1 ||
        a->reserved_lost + a->extended_lost + a->settle_lost + a->release_lost != 0 ||
        a->expired != a->expiries + a->retentions) {
        return false;
    }
    stress_request(accounts->board, a->id, &request);
    charge[0] = a->released == 0;
    charge[1] = tokens;
    charge[2] = cost;
    if (a->settled + a->late == 1) {
        if (stress_usage(&request, a->settle_variant, &usage)) {
            charge[1] = usage.input_tokens + usage.output_tokens;
            charge[2] = usage.cost_micros;
        }
    } else if (a->released == 1 || (a->disputed == 0 && a->retentions == 0)) {
        charge[1] = charge[2] = 0;
    }
    return true;
}

static void check_amounts(struct accounts *accounts, const struct account *a)
{
    uint64_t charge[3];

    if (a->reservations != 1) {
        return;
    }
    if (a->reserved == 1) {
        expect_equal(accounts, a, "its tokens", a->row_tokens, a->first_tokens);
        expect_equal(accounts, a, "its cost", a->row_cost, a->first_cost);
        expect_equal(accounts, a, "its instant", a->window_ms, a->made_ms);
    }
    if (a->replays > 0) {
        expect_equal(accounts, a, "its tokens as replayed", a->row_tokens, a->replay_tokens);
        expect_equal(accounts, a, "its cost as replayed", a->row_cost, a->replay_cost);
    }
    if (a->closed_tokens < a->most_tokens || a->closed_cost < a->most_cost) {
        stress_wrong(accounts->board, "an extension was answered and is not in what was closed");
    }
    if (a->dispatched > 0 && a->releases > 0) {
        stress_wrong(accounts->board, "a dispatched reservation was released");
    }
    if (expected_charge(accounts, a, charge)) {
        for (int i = 0; i < 3; i++) {
            expect_equal(accounts, a,
                         i == 0   ? "invocations charged"
                         : i == 1 ? "tokens charged"
                                  : "micros charged",
                         (uint64_t)a->charged[i], charge[i]);
        }
    }
}

static void check_account(struct accounts *accounts, const struct account *a)
{
    struct stress_request request;

    check_counts(accounts, a);
    check_amounts(accounts, a);
    accounts->board->checked++;
    accounts->board->unanswered_happened += a->reservations > a->reserved ? a->reservations - a->reserved : 0;
    if (a->reservations == 0) {
        return;
    }
    stress_request(accounts->board, a->id, &request);
    if (a->reservations == 1) {
        struct minute *minute = minute_of(accounts, request.tenant_idx, request.team[0], a->window_ms);

        minute->charged += a->charged[2];
        minute->rises += a->rises;
    }
}

static void check_minutes(struct accounts *accounts)
{
    const struct stress_config *config = stress_config(accounts->board->config);

    for (uint32_t i = 0; i <= accounts->minutes_mask; i++) {
        const struct minute *minute = &accounts->minutes[i];
        bool degrades = (char)((minute->key - 1) & 0xff) == 'b';
        uint64_t room =
            config->minute_micros * (degrades ? 4 : 6) / 8 + (degrades ? 300 : 0) + minute->credit;

        if (minute->key == 0) {
            continue;
        }
        if (minute->charged > (int64_t)(room + minute->rises)) {
            stress_wrong(accounts->board,
                         "oversold: %" PRId64 " charged in a minute with room for %" PRIu64 " and %" PRIu64
                         " above admissions",
                         minute->charged, room, minute->rises);
        }
        /* n credits by one of one window went from 0 to n, each step once. */
        if (minute->credits > 0 && (minute->credit != minute->credits ||
                                    minute->befores != minute->credits * (minute->credits - 1) / 2)) {
            stress_wrong(accounts->board, "%" PRIu64 " credits by one made %" PRIu64, minute->credits,
                         minute->credit);
        }
    }
}

static void check_chain(struct accounts *accounts, struct hf_store *store, const struct hf_store_head *head)
{
    struct hf_store_totals totals;
    struct hf_store_error error = {""};

    if (hf_store_totals(store, STRESS_STORE, &totals, &error) != HF_STORE_OK) {
        stress_wrong(accounts->board, "%s", error.text);
        return;
    }
    if (totals.receipts_cnt != totals.batch_rows_cnt || totals.receipts_cnt != head->next_seq - 1 ||
        totals.aside_cnt != 0) {
        stress_wrong(accounts->board,
                     "%" PRIu64 " receipts, batches say %" PRIu64 ", next is %" PRIu64 "; %" PRIu64 " aside",
                     totals.receipts_cnt, totals.batch_rows_cnt, head->next_seq, totals.aside_cnt);
    }
}

static void account_all(struct accounts *accounts, struct hf_store *store)
{
    struct stress_board *board = accounts->board;
    struct hf_store_error error = {""};
    struct hf_store_head head;

    for (uint32_t r = 0; r < STRESS_REGIONS; r++) {
        for (uint32_t i = 0; i < board->used[r]; i++) {
            take_rec(accounts, &board->recs[r][i]);
        }
        board->operations += board->used[r];
    }
    if (hf_store_head(store, STRESS_STORE, &head, &error) != HF_STORE_OK ||
        hf_store_rows(store, STRESS_STORE, board->first_seq, head.next_seq - board->first_seq, take_row,
                      accounts, &error) != HF_STORE_OK) {
        stress_wrong(board, "reading the store: %s", error.text);
        return;
    }
    for (uint32_t i = 0; i <= accounts->mask; i++) {
        if (accounts->all[i].id != 0) {
            check_account(accounts, &accounts->all[i]);
        }
    }
    check_minutes(accounts);
    check_chain(accounts, store, &head);
    if (accounts->expiries < accounts->expiries_told ||
        accounts->expiries > accounts->expiries_told + accounts->reaped_lost) {
        stress_wrong(board,
                     "%" PRIu64 " expiries in the store, %" PRIu64 " were told, %" PRIu64 " passes cut off",
                     accounts->expiries, accounts->expiries_told, accounts->reaped_lost);
    }
    if (accounts->credit_rows < accounts->credits ||
        accounts->credit_rows > accounts->credits + accounts->credits_lost) {
        stress_wrong(board, "%" PRIu64 " credits in the store, %" PRIu64 " were answered, %" PRIu64 " lost",
                     accounts->credit_rows, accounts->credits, accounts->credits_lost);
    }
    board->first_seq = head.next_seq;
}

void stress_account(struct stress_board *board, struct hf_store *store)
{
    uint32_t records = 1024;
    struct accounts accounts = {.board = board, .mask = 1023, .minutes_mask = 65535};

    for (uint32_t r = 0; r < STRESS_REGIONS; r++) {
        records += board->used[r];
    }
    while (accounts.mask < 2 * records) {
        accounts.mask = accounts.mask * 2 + 1;
    }
    accounts.all = calloc((size_t)accounts.mask + 1, sizeof(*accounts.all));
    accounts.minutes = calloc((size_t)accounts.minutes_mask + 1, sizeof(*accounts.minutes));
    if (accounts.all == NULL || accounts.minutes == NULL) {
        stress_wrong(board, "no memory for the accounts");
    } else {
        account_all(&accounts, store);
    }
    free(accounts.all);
    free(accounts.minutes);
}
