#!/bin/bash
# Tests the runner: right answers pass, and each kind of wrong answer fails, with the report that it should give.
#
#   tests/conformance/selftest/run.sh RUNNER FAKE
set -uo pipefail
runner=$(realpath "$1")
export FAKE_BINARY=$(realpath "$2")
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
export FAKE_FOLDER=$folder/segments
export TMPDIR=$folder/tmp
mkdir -p "$TMPDIR" "$FAKE_FOLDER" "$folder/policies"
echo '{}' >"$folder/policies/good.json"
echo '{}' >"$folder/policies/bad-1.json"
echo '{}' >"$folder/policies/bad-2.json"
scenario=$folder/scenario.jsonl
answers=$folder/answers
header='{"title":"t","policy":"policies/good.json","clock_ms":1}'
failed=0
cases=0

# expect STATUS PATTERN NAME: runs $scenario; the exit status and a line of the report must be these. `with` is what
# env is given, `flags` what the runner is.
expect() {
    local report status
    report=$(env ${with[@]+"${with[@]}"} "$runner" --holdfast "$FAKE_BINARY" --timeout 20 ${flags[@]+"${flags[@]}"} \
        "$scenario" 2>&1)
    status=$?
    cases=$((cases + 1))
    if [ $status -ne "$1" ] || ! grep -qE -- "$2" <<<"$report"; then
        echo "FAIL $3: status $status in place of $1, or no line like '$2' in:"
        sed 's/^/    /' <<<"$report"
        failed=$((failed + 1))
    fi
}

# step STATUS PATTERN NAME OUT ANSWER: one step whose answer is ANSWER.
step() {
    printf '%s\n{"in":{"op":"x"},"out":%s}\n' "$header" "$4" >"$scenario"
    printf '%s\n' "$5" >"$answers"
    with=("FAKE_ANSWERS=$answers") flags=()
    expect "$1" "$2" "$3"
}

# echoed STATUS PATTERN NAME LINE...: steps that are answered with what was sent.
echoed() {
    printf '%s\n' "$header" "${@:4}" >"$scenario"
    with=() flags=()
    expect "$1" "$2" "$3"
}

step 0 '1 passed, 0 skipped, 0 failed; 1 steps' 'a part of the keys' '{"a":1,"b":{"c":"x"}}' '{"b":{"d":2,"c":"x"},"a":1,"e":[]}'
step 0 'PASS scenario' 'no keys at all' '{}' '{"a":1}'
step 1 'line 2: a: expected 1, came 2' 'another number' '{"a":1}' '{"a":2}'
step 1 'a: expected 1, came true' '1 is not true' '{"a":1}' '{"a":true}'
step 1 'a: expected 1, came "1"' '1 is not "1"' '{"a":1}' '{"a":"1"}'
step 1 'a: expected 1, came 1.0' '1 is not 1.0' '{"a":1}' '{"a":1.0}'
step 1 'a: expected true, came 1' 'true is not 1' '{"a":true}' '{"a":1}'
step 1 'a: expected 0, came null' '0 is not null' '{"a":0}' '{"a":null}'
step 1 'a: expected null, came 0' 'null is not 0' '{"a":null}' '{"a":0}'
step 1 'a: expected null, the key is not there' 'null is not absence' '{"a":null}' '{"b":1}'
step 1 'a: expected false, came null' 'false is not null' '{"a":false}' '{"a":null}'
step 1 'a: expected "x", came "X"' 'case counts' '{"a":"x"}' '{"a":"X"}'
step 0 'PASS' 'the largest amount' '{"a":72057594037927935}' '{"a":72057594037927935}'
step 1 'expected 72057594037927935, came 72057594037927934' 'one less' '{"a":72057594037927935}' '{"a":72057594037927934}'
step 1 'a.b: expected 1, came 2' 'nested' '{"a":{"b":1}}' '{"a":{"b":2}}'
step 1 'a: expected an object, came \[\]' 'no object' '{"a":{"b":1}}' '{"a":[]}'
step 0 'PASS' 'a list of objects' '{"a":[{"b":1},{}]}' '{"a":[{"b":1,"c":2},{"d":3}]}'
step 1 'a: expected a list of 1, not of 2' 'an entry too many' '{"a":[{"b":1}]}' '{"a":[{"b":1},{"b":2}]}'
step 1 'a: expected a list of 2, not of 1' 'an entry too few' '{"a":[{"b":1},{}]}' '{"a":[{"b":1}]}'
step 1 'a: expected a list of 0, not of 1' 'not empty' '{"a":[]}' '{"a":[1]}'
step 1 'a\[0\].b: expected 1, came 2' 'another order' '{"a":[{"b":1},{"b":2}]}' '{"a":[{"b":2},{"b":1}]}'
step 1 'a: expected a list, came \{\}' 'no list' '{"a":[]}' '{"a":{}}'
step 0 'PASS' 'absent' '{"a":{"$absent":true}}' '{"b":1}'
step 1 'a: expected no such key, came null' 'null is there' '{"a":{"$absent":true}}' '{"a":null}'
step 1 'a.b: expected no such key, came 1' 'nested and there' '{"a":{"b":{"$absent":true}}}' '{"a":{"b":1}}'
step 0 'PASS' 'any value' '{"a":{"$any":true},"b":[{"$any":true}]}' '{"a":null,"b":[{}]}'
step 1 'a: expected .*any.*the key is not there' 'any value but none' '{"a":{"$any":true}}' '{"b":1}'
step 0 'PASS' 'length' '{"a":{"$len":2},"b":{"$len":0}}' '{"a":[1,2],"b":[]}'
step 1 'a: expected a list of 2, not of 3' 'another length' '{"a":{"$len":2}}' '{"a":[1,2,3]}'
step 1 'a: expected a list of 0, not of 0, came \{\}' 'length of no list' '{"a":{"$len":0}}' '{"a":{}}'
step 0 'PASS' 'the same twice' '{"a":"$t","b":"$t"}' '{"a":[1,{"c":2}],"b":[1,{"c":2}]}'
step 1 'b: expected 1, came 2' 'not the same twice' '{"a":"$t","b":"$t"}' '{"a":1,"b":2}'
step 1 'b: expected 1, came "1"' 'not the same type' '{"a":"$t","b":"$t"}' '{"a":1,"b":"1"}'
step 1 'a: expected "\$t", the key is not there' 'nothing to keep' '{"a":"$t"}' '{}'
step 1 'a: expected "\$", came 1' 'a dollar alone is a dollar' '{"a":"$"}' '{"a":1}'
step 1 'no JSON object: ' 'broken JSON' '{}' '{"a":1'
step 1 'no JSON object' 'a list for an answer' '{}' '[]'
step 1 'no JSON object: ' 'two objects on a line' '{}' '{}{}'
step 1 'no JSON object: .*duplicate' 'a key twice' '{"a":1}' '{"a":2,"a":1}'
step 1 'no JSON object' 'a blank answer' '{}' ''
step 1 'sent: \{"op":"x"\}' 'the report says what was sent' '{"a":1}' '{"a":2}'
step 1 'came: \{"a":2,"z":9\}' 'and what came' '{"a":1}' '{"a":2,"z":9}'
step 1 'line: 2$' 'and on which line' '{"a":1}' '{"a":2}'

printf '%s\n{"in":{"op":"x"}}\n' "$header" >"$scenario"
with=("FAKE_ANSWERS=$answers") flags=()
echo '{"whatever":1}' >"$answers"
expect 0 'PASS' 'a step without out takes any answer'
echo 'whatever' >"$answers"
expect 1 'no JSON object' 'but it must be one'

printf '{"a":1.5\0}\n' >"$answers"
expect 1 'no JSON object: it has a NUL byte' 'a NUL byte in an answer'

# Of the default, 256 lines ahead, and one by one.
for ahead in 256 1; do
    printf '%s\n' "$header" '{"in":{"op":"a"},"out":{"t":"$t"}}' '{"in":{"op":"b","ticket":"$t"},"out":{"n":2}}' \
        '{"in":{"op":"c"},"out":{"t":"$t"}}' >"$scenario"
    printf '%s\n' '{"t":"T1"}' '{"n":2}' '{"t":"T1"}' >"$answers"
    with=("FAKE_ANSWERS=$answers") flags=(--in-flight $ahead)
    expect 0 '; 3 steps' 'what was kept is known later'
    printf '%s\n' '{"t":"T1"}' '{"n":2}' '{"t":"T2"}' >"$answers"
    expect 1 'line 4: t: expected "T1", came "T2"' 'and compared'
done

echoed 0 '; 1 steps' 'the order of keys, blanks and numbers' '{"in":{"op":"x","z":1.0,"a":[1.5,null,true,"ü\u0000"]},"out":{"echo":{"z":1.0,"a":[1.5,null,true,"ü\u0000"]}}}'
echoed 0 '; 2 steps' 'sent what was kept' '{"in":{"op":"x","n":7},"out":{"echo":{"n":"$n"}}}' '{"in":{"op":"y","m":["$n"]},"out":{"echo":{"m":[7]}}}'
echoed 1 'line 2: no earlier answer gave \$n' 'nothing was kept' '{"in":{"op":"x","n":"$n"}}'
echoed 0 '; 12 steps' 'repeated' '{"repeat":12,"in":{"op":"x","id":"m{i}-{i}","n":[{"k":"{i}"}]},"out":{"echo":{"id":"m{i}-{i}","n":[{"k":"{i}"}]}}}'
echoed 0 '; 12 steps' 'repeated from 1 to N' '{"in":{"op":"x"}}' '{"repeat":10,"in":{"op":"x","id":"m{i}"},"out":{"echo":{"id":"m{i}"}}}' '{"in":{"op":"x","id":"m{i}"},"out":{"echo":{"id":"m{i}"}}}'
echoed 1 'line: 2, turn 1 of 3' 'a repeated step fails at its turn' '{"repeat":3,"in":{"op":"x","id":"{i}"},"out":{"echo":{"id":"2"}}}'
echoed 1 'expected: .*"id":"m1"' 'the report is filled in' '{"repeat":3,"in":{"op":"x","id":"{i}"},"out":{"echo":{"id":"m{i}"}}}'
echoed 0 'PASS' 'raw' '{"raw":"  {\"a\" :1} \t","out":{"hex":"20207b226122203a317d2009"}}'
echoed 0 'PASS' 'raw and empty' '{"raw":"","out":{"hex":"","echo":null}}'
echoed 0 '; 2 steps' 'raw is as it is, repeated too' '{"repeat":2,"raw":"{i}","out":{"hex":"7b697d"}}'
echoed 0 'PASS' 'hex' '{"hex":"fffe00C3","out":{"hex":"fffe00c3"}}'
echoed 0 '; 1 steps' 'notes' '{"note":"alone"}' '{"note":"beside","in":{"op":"x"},"out":{}}'
echoed 0 'PASS' 'the policy of apply is relative to the file' "{\"in\":{\"op\":\"apply\",\"policy\":\"policies/p.json\"},\"out\":{\"echo\":{\"policy\":\"$folder/policies/p.json\"}}}"

for broken in '{"in":{"op":"x"},"outt":{}}' '{"in":{"op":"x"},"raw":"y"}' '{"out":{}}' '{"hex":"abc"}' '{"hex":"zz"}' \
    '{"raw":"a\nb"}' '{"repeat":0,"in":{"op":"x"}}' '{"in":{"op":"x"},"out":{"a":{"$absnt":true}}}' \
    '{"in":{"op":"x"},"out":{"a":[{"$absent":true}]}}' '{"in":{"op":"x"},"out":{"$absent":true}}' \
    '{"in":{"op":"x"},"out":{"a":{"$any":true,"b":1}}}' '{"in":{"op":"x"},"out":{"a":{"$any":false}}}' \
    '{"in":{"op":"x"},"out":{"a":{"$len":"2"}}}' '{"in":{"op":"x"},"out":[]}' '{"in":[]}' '[]' '{' ''; do
    echoed 1 'scenario.jsonl:2: ' "a broken step: $broken" "$broken" '{"in":{"op":"x"}}'
done
for broken in '{"title":"t","policy":"p"}' '{"title":"t","policy":"p","clock_ms":"1"}' '{"title":"t","clock_ms":1}' \
    '{"title":"t","policy":"p","refused_policies":["q"],"clock_ms":1}' '{"title":"t","policy":"p","clock_ms":1,"need":["q"]}'; do
    printf '%s\n' "$broken" '{"in":{"op":"x"}}' >"$scenario"
    expect 1 'scenario.jsonl:1: ' "a broken header: $broken"
done
printf '%s\n' "$header" >"$scenario"
expect 1 'there is no step' 'a scenario without steps'
: >"$scenario"
expect 1 'empty' 'an empty file'

two=('{"in":{"op":"x"}}' '{"in":{"op":"y"}}')
fails() { # MODE PATTERN
    printf '%s\n' "$header" "${two[@]}" >"$scenario"
    with=("FAKE=$1")
    expect 1 "$2" "$1"
}
flags=()
fails status 'all answers were right, but the command ended with status 5'
fails more-lines 'the command said more than there were lines'
fails more-bytes 'the command said more, and not a whole line'
fails early 'the command said more than there were lines'
fails short 'the command ended with status 0 after 1 answers'
fails crash 'was ended by signal 9'
fails crash 'fake: going down'
fails short 'sent: \{"op":"y"\}'
flags=(--timeout 4)
fails buffered 'the time for the scenario is over after 0 answers'
fails hangs 'the time for the scenario is over after 2 answers'

# Far more than two pipes hold, both ways at once.
printf '%s\n' "$header" "{\"repeat\":3000,\"in\":{\"op\":\"x\",\"id\":\"{i}\",\"pad\":\"$(head -c 2000 /dev/zero | tr '\0' p)\"},\"out\":{\"echo\":{\"id\":\"{i}\"}}}" >"$scenario"
with=("FAKE_PAD=10000") flags=(--in-flight 3000)
expect 0 '; 3000 steps' 'much in both directions'

printf '%s\n' '{"title":"t","policy":"policies/good.json","clock_ms":1,"needs":["meters","queue"]}' '{"in":{"op":"x"},"out":{"a":1}}' >"$scenario"
with=() flags=()
expect 1 '0 passed, 0 skipped, 1 failed' 'what it needs is there'
flags=(--without poll,queue)
expect 1 'SKIP scenario.jsonl: needs queue' 'left out by name; nothing passed'
expect 1 'no scenario was left out for want of poll' 'a name too many is told'
expect 1 '0 passed, 1 skipped, 0 failed' 'and counted'

printf '%s\n' '{"title":"t","refused_policies":["policies/bad-1.json","policies/bad-2.json"],"clock_ms":1}' >"$scenario"
with=() flags=()
expect 0 '; 2 steps' 'refused policies'
with=("FAKE=accepts"); expect 1 'bad-1.json it ended with status 0' 'a bad policy is taken'
with=("FAKE=status-1"); expect 1 'bad-1.json it ended with status 1 in place of status 2' 'another status'
with=("FAKE=answers"); expect 1 'it answered: ' 'an answer all the same'
printf '%s\n' '{"title":"t","refused_policies":["policies/bad-1.json","policies/bad-3.json"],"clock_ms":1}' >"$scenario"
with=(); expect 1 'bad-3.json cannot be read' 'a policy that is not there proves nothing'
printf '%s\n' '{"title":"t","refused_policies":["policies/bad-1.json","policies/good.json"],"clock_ms":1}' >"$scenario"
with=(); expect 1 'good.json it ended with status 0' 'the second is taken'

flags=(--daemon "$FAKE_BINARY" --store sqlite)
printf '%s\n' '{"title":"t","refused_policies":["policies/bad-1.json","policies/bad-2.json"],"clock_ms":1}' >"$scenario"
with=(); expect 0 '; 2 steps' 'a daemon refuses'
with=("FAKE=status-1"); expect 1 'status 1 in place of status 2' 'with another status'
flags+=(--timeout 3)
with=("FAKE=daemon-accepts"); expect 1 'bad-1.json it did not end' 'a daemon takes a bad policy'
flags=(--daemon "$FAKE_BINARY" --store sqlite)
printf '%s\n' "$header" "${two[@]}" >"$scenario"
with=(); expect 0 '; 2 steps' 'served'
with=() flags=(--daemon "$FAKE_BINARY" --store "sqlite:$folder/{name}.db"); expect 0 '; 2 steps' 'served, a store by name'
flags=(--daemon "$FAKE_BINARY" --store sqlite)
with=("FAKE=no-store"); expect 1 'holdfast store init ended with status 1' 'no store'
with=("FAKE=daemon-dies"); expect 1 'and the daemon ended with status 3' 'the daemon does not start'
with=("FAKE=daemon-dies"); expect 1 'fake: no store today' 'and says why'
with=("FAKE=daemon-status"); expect 1 'the daemon was asked to leave and ended with status 1' 'a daemon leaves badly'
with=("FAKE=crash"); expect 1 'was ended by signal 9' 'the command crashes, served'
flags+=(--timeout 6)
with=("FAKE=daemon-stays"); expect 1 'the daemon was asked to leave and did not' 'the daemon stays'
flags=(--daemon "$FAKE_BINARY" --store postgres)
with=(-u HOLDFAST_TEST_PG); expect 77 'HOLDFAST_TEST_PG is not there' 'no PostgreSQL'
if [ -n "${HOLDFAST_TEST_PG:-}" ]; then
    with=(); expect 0 '; 2 steps' 'a database of PostgreSQL'
    with=("HOLDFAST_TEST_PG=postgresql://nobody@/none?host=/nowhere"); expect 1 'cannot make a database' 'no such server'
fi
flags=(--store sqlite)
with=(); expect 2 'Usage' 'a store without a daemon'
scenario=$folder/none.jsonl
flags=()
with=(); expect 77 'none.jsonl is not there' 'no such scenario'

if [ -n "$(ls -A "$TMPDIR")" ]; then
    echo "FAIL the runner left behind:" "$TMPDIR"/*
    failed=$((failed + 1))
fi
echo "selftest: $cases cases, $failed failed"
[ $failed -eq 0 ] && [ $cases -gt 110 ]
