"""Writes tests/unit/text/data/jinja.json: templates and what jinja2 makes of them.

Usage: python tools/golden/jinja_cases.py [--out FILE]
Owns the templates, which are written for the tests and copy no model's. The environment is the one in which
transformers renders chat templates. A case whose rendering fails is stored with "error": only that it fails counts.
"""

import argparse
import datetime
import json

import jinja2
import jinja2.ext
import jinja2.sandbox

NOW = datetime.datetime(2024, 7, 26, 9, 5, 3)

MESSAGES = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "Hi <|im_end|> {{ x }}"},
    {"role": "assistant", "content": "<think>\nhm\n</think>\n\nHello \u00fc \U0001f680"},
    {"role": "user", "content": [{"type": "text", "text": "part one"}, {"type": "image"}]},
]
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "get_weather",
            "description": 'Weather of a "place" <here> & there',
            "parameters": {
                "type": "object",
                "properties": {
                    "place": {"type": "string", "description": "where \u00e9"},
                    "days": {"type": "integer", "default": 3},
                    "exact": {"type": ["boolean", "null"], "enum": [True, False, None]},
                },
                "required": ["place"],
            },
        },
    },
    {"type": "function", "function": {"name": "noop", "parameters": {"type": "object", "properties": {}}}},
]
CALLS = [
    {"role": "user", "content": "Weather?"},
    {
        "role": "assistant",
        "content": "",
        "tool_calls": [
            {"id": "c1", "function": {"name": "get_weather", "arguments": {"place": "Oslo", "days": 2, "exact": None}}},
            {"id": "c2", "function": {"name": "noop", "arguments": {}}},
        ],
    },
    {"role": "tool", "tool_call_id": "c1", "content": "rain"},
    {"role": "tool", "tool_call_id": "c2", "content": "ok"},
    {"role": "user", "content": "Thanks"},
]
DATA = {
    "n": 7,
    "zero": 0,
    "neg": -7,
    "f": 2.5,
    "s": "Hello, W\u00f6rld",
    "empty": "",
    "nothing": None,
    "yes": True,
    "xs": [3, 1, 2],
    "words": ["pear", "Apple", "fig", "apple"],
    "d": {"b": 1, "a": 2, "items": "shadow"},
    "rows": [
        {"name": "x", "v": 2, "sub": {"k": "p"}},
        {"name": "Y", "v": 1, "sub": {"k": "q"}},
        {"name": "z", "v": 2, "sub": {"k": "p"}},
    ],
    "spaced": "  padded\t\n",
    "multi": "one\ntwo\n\nthree\n",
}

# name, template[, variables]
CASES = [
    # ---- output and literals ----
    ("text only", "plain text\n"),
    ("last newline goes", "a\n\n"),
    ("windows newlines", "a\r\nb\rc\r\n"),
    ("none true false", "{{ none }} {{ None }} {{ true }} {{ True }} {{ false }} {{ nothing }} {{ yes }}"),
    ("numbers", "{{ 42 }} {{ 1_000 }} {{ 0x1F }} {{ 0o17 }} {{ 0b101 }} {{ 1.5 }} {{ 1e3 }} {{ 1e20 }} {{ 1.0e-7 }}"),
    ("float printing", "{{ 0.1 + 0.2 }} {{ 1e16 }} {{ 123456789.125 }} {{ 1/3 }} {{ -0.0 }} {{ 5e-5 }} {{ 1e15 }} {{ 1e22 }}"),
    ("strings", "{{ 'a' }} {{ \"b\" }} {{ 'it\\'s' }} {{ 'a\\nb\\t\\x41\\u00e9\\\\' }} {{ 'one' 'two' }}"),
    ("unknown escape", "{{ 'a\\d\\101' }}"),
    ("lists and tuples", "{{ [1, 'a', None, true, 1.5] }} {{ (1, 2) }} {{ (1,) }} {{ () }} {{ [] }} {{ 1, 2 }}"),
    ("dicts", "{{ {'a': 1, 'b': [1], 2: 'x', 'c': {'d': none}} }} {{ {} }}"),
    ("repr quotes", "{{ ['it\\'s', 'say \"hi\"', 'both \\' \"', 'n\\nl', 'tab\\t', '\\\\', '\\x07', '\u00e9', '\\u200b'] }}"),
    ("braces inside", "{{ {'a': {'b': {}}} }}"),
    ("undefined prints nothing", "[{{ missing }}][{{ d.missing }}][{{ missing ~ 'x' }}]"),
    # ---- operators ----
    ("arithmetic", "{{ n + 3 }} {{ n - 10 }} {{ n * 2 }} {{ n / 2 }} {{ n // 2 }} {{ n % 3 }} {{ 2 ** 10 }} {{ 6 / 3 }}"),
    ("floor and sign", "{{ -7 // 2 }} {{ -7 % 3 }} {{ 7 % -3 }} {{ -7.5 % 2 }} {{ 7.5 // 2 }} {{ 7 // -2 }} {{ -7.5 // 2 }}"),
    ("power chains", "{{ 2 ** 3 ** 2 }} {{ -2 ** 2 }} {{ 2 ** -1 }} {{ 2.0 ** 3 }}"),
    ("precedence", "{{ 1 + 2 * 3 }} {{ (1 + 2) * 3 }} {{ 1 ~ 2 * 3 }} {{ 10 - 4 - 3 }} {{ not 1 == 2 }} {{ 'a' ~ 'b' * 2 }}"),
    ("unary", "{{ -n }} {{ +n }} {{ -f }} {{ - n + 1 }} {{ -true }}"),
    ("string operators", "{{ 'ab' * 3 }} {{ 3 * 'x' }} {{ 'a' + 'b' }} {{ 'x' * 0 }}|{{ 'x' * -1 }}|{{ [0] * 3 }} {{ [1] + [2] }} {{ (1,) + (2,) }}"),
    ("bool arithmetic", "{{ true + true }} {{ true * 2.5 }} {{ 1 == true }} {{ 1.0 == 1 }} {{ 0 == false }}"),
    ("comparisons", "{{ 1 < 2 }} {{ 2 <= 1 }} {{ 'a' < 'b' }} {{ 'b' >= 'a' }} {{ 1 < 2 < 3 }} {{ 1 < 2 > 5 }} {{ 1 != 1.0 }} {{ [1, 2] < [1, 3] }} {{ (1, 2) == (1, 2) }}"),
    ("equality", "{{ xs == [3, 1, 2] }} {{ d == {'a': 2, 'items': 'shadow', 'b': 1} }} {{ none == false }} {{ missing == missing2 }} {{ '1' == 1 }} {{ [1] == (1,) }}"),
    ("in", "{{ 2 in xs }} {{ 9 in xs }} {{ 'a' in d }} {{ 'ell' in s }} {{ '' in s }} {{ 9 not in xs }} {{ 'a' in missing }} {{ none in [none] }}"),
    ("and or not", "{{ 0 or 'x' }} {{ '' and 'y' }}|{{ 1 and 'z' }} {{ not '' }} {{ not not 3 }} {{ none or false or [] }}"),
    ("truthiness", "{% for v in [0, 0.0, '', [], {}, none, false, 1, 'a', [0], {'k': 0}, ()] %}{{ 1 if v else 0 }}{% endfor %}"),
    ("concat", "{{ 'a' ~ 1 ~ none ~ true ~ 1.5 ~ [1] }}"),
    ("inline if", "{{ 'a' if yes }}{{ 'b' if zero }}{{ 'c' if zero else 'd' }}{{ 1 if zero else 2 if zero else 3 }}"),
    ("format", "{{ '{} is {}'.format('Al', 7) }} {{ '{1}{0}{{}}'.format(1, 'b') }} {{ '{a:>4}|{a:4}|{b:.2f}|{b!r}|{c:04d}'.format(a='x', b=1.5, c=7) }}"),
    ("select of none", "{{ none | selectattr('type', 'equalto', 'a') | list | length }}{{ none | map('upper') | list }}{{ zero | select | list }}"),
    ("percent", "{{ '%s is %d years' % ('Al', 7) }} {{ '%05.2f|%-5s|%5s|%x|%r|%%' % (3.14159, 'ab', 'cd', 255, 'q') }} {{ '%s' % 5 }} {{ '%(a)s' % {'a': 1} }} {{ '%+d' % 5 }}"),
    # ---- items and slices ----
    ("index", "{{ xs[0] }} {{ xs[-1] }} {{ s[0] }} {{ s[-1] }} {{ s[8] }} {{ d['a'] }} {{ d.a }} [{{ xs[9] }}] {{ xs.0 }} [{{ d['zz'] }}]"),
    ("slice", "{{ xs[1:] }} {{ xs[:-1] }} {{ xs[::-1] }} {{ xs[::2] }} {{ s[1:4] }} {{ s[-5:] }} {{ s[::-1] }} {{ s[7:2:-2] }} {{ xs[5:] }} {{ xs[-9:2] }}|{{ s[3:1] }}|{{ xs[:] }} {{ (1,2,3)[1:] }}"),
    ("slice none", "{{ xs[none:2] }} {{ s[:none] }}"),
    ("method before key", "{% for k, v in d.items() %}{{ k }}={{ v }};{% endfor %}{{ d['items'] }}"),
    ("nested", "{{ rows[1].sub.k }} {{ rows[0]['sub']['k'] }} {{ rows[-1].name }}"),
    # ---- statements ----
    ("if chain", "{% if zero %}a{% elif n == 7 %}b{% else %}c{% endif %}{% if zero %}x{% endif %}{% if nothing is none %}y{% endif %}"),
    ("for", "{% for x in xs %}{{ loop.index }}:{{ x }}{% if not loop.last %},{% endif %}{% endfor %}"),
    ("loop variables", "{% for x in xs %}{{ loop.index0 }} {{ loop.revindex }} {{ loop.revindex0 }} {{ loop.first }} {{ loop.last }} {{ loop.length }} {{ loop.depth }};{% endfor %}"),
    ("loop neighbours", "{% for x in xs %}{{ loop.previtem if loop.previtem is defined else '-' }}<{{ x }}>{{ loop.nextitem is defined }} {% endfor %}"),
    ("loop cycle", "{% for x in range(5) %}{{ loop.cycle('a', 'b') }}{% endfor %}"),
    ("for unpack", "{% for k, v in d.items() %}{{ k }}{{ v }}{% endfor %} {% for a, (b, c) in [(1, (2, 3))] %}{{ a }}{{ b }}{{ c }}{% endfor %}"),
    ("for filter", "{% for x in xs if x > 1 %}{{ loop.index }}/{{ loop.length }}={{ x }} {% endfor %}"),
    ("for else", "{% for x in [] %}a{% else %}none{% endfor %}{% for x in xs if x > 9 %}a{% else %}none{% endfor %}"),
    ("for over dict and text", "{% for k in d %}{{ k }} {% endfor %}{% for c in 'h\u00e9y' %}[{{ c }}]{% endfor %}{% for x in missing %}x{% endfor %}"),
    ("break continue", "{% for x in range(10) %}{% if x == 2 %}{% continue %}{% endif %}{% if x == 5 %}{% break %}{% endif %}{{ x }}{% endfor %}"),
    ("nested loops", "{% for a in [1, 2] %}{% set outer = loop %}{% for b in [1, 2] %}{{ outer.index }}{{ loop.index }}{{ loop.depth }} {% endfor %}{% endfor %}"),
    ("set scope", "{% set x = 1 %}{% for i in [1, 2] %}{% set x = x + i %}{{ x }}{% endfor %}{{ x }}{% if true %}{% set x = 9 %}{% endif %}{{ x }}"),
    ("set tuple", "{% set a, b = 1, 'z' %}{{ b }}{{ a }}{% set c = 1, 2 %}{{ c }}"),
    ("set block", "{% set x %}in {{ n }}{% endset %}[{{ x }}]{% set y | upper | replace('A', 'b') %}abc{% endset %}[{{ y }}]"),
    ("namespace", "{% set ns = namespace(a=1, found=false) %}{% for x in xs %}{% set ns.a = ns.a + x %}{% if x == 1 %}{% set ns.found = true %}{% endif %}{% endfor %}{{ ns.a }} {{ ns.found }} [{{ ns.zz }}]"),
    ("macro", "{% macro m(a, b=2, c='z') %}{{ a }}-{{ b }}-{{ c }};{% endmacro %}{{ m(1) }}{{ m(1, c=3) }}{{ m(b=1, a=0) }}{{ m() }}"),
    ("macro is trimmed and nested", "{% macro f(x) -%} [{{ x }}] {%- endmacro %}{% macro g(x) %}{{ f(x) ~ f(x + 1) }}{% endmacro %}{{ g(1) | length }} {{ g(2) }}"),
    ("macro recursion", "{% macro t(x) %}{{ x }}{% if x > 0 %}{{ t(x - 1) }}{% endif %}{% endmacro %}{{ t(4) }}"),
    ("macro sees later globals", "{% macro m() %}{{ late }}{% endmacro %}{% set late = 5 %}{{ m() }}"),
    ("macro default uses argument", "{% macro m(a, b=a) %}{{ a }}{{ b }}{% endmacro %}{{ m(3) }}"),
    ("call block", "{% macro wrap(t) %}<{{ t }}>{{ caller() }}</{{ t }}>{% endmacro %}{% call wrap('b') %}in {{ n }}{% endcall %}"),
    ("filter block", "{% filter upper %}abc {{ s }}{% endfilter %}{% filter replace('a', 'b') | trim %} aa {% endfilter %}"),
    ("with", "{% with a = 1, b = 2 %}{{ a + b }}{% endwith %}[{{ a }}]"),
    ("comments and raw", "a{# c {{ x }} #}b{% raw %}{{ x }}{% y %}{% endraw %}c"),
    ("macros call each other before their definition", "{% macro a(x) %}[{% for k, v in x | dictsort %}{{ k }}:{{ b(v) }}{% if not loop.last %},{% endif %}{% endfor %}]{% endmacro %}{% macro b(v, deep=True) %}{% if v is mapping %}{{ a(v) }}{% elif v is sequence and v is not string %}<{% for i in v %}{{ b(i, deep=deep) }}{% endfor %}>{% else %}{{ v }}{% endif %}{% endmacro %}{{ a({'z': 1, 'y': {'q': ['w', 2]}}) }}"),
    ("lone braces", "a{{- n -}}{b:<|\"|>{{- s -}}<|\"|>\n{% if n %}\n    ,c:{\n    { {{- n -}} },\n{%- endif -%}\n    }} %} #}\n{ % x % }"),
    ("list in a namespace", "{% set q = namespace(ids=[]) %}{% macro put(x) %}{% set _ = q.ids.append(x) %}{% endmacro %}{{ put(1) }}{{ put(2) }}{% if q.ids %}{{ q.ids.pop(0) }}{% endif %}{{ q.ids }}", {"_changes": True}),
    ("counting down", "{% for i in range(rows | length - 1, -1, -1) %}{{ i }}{{ rows[i].get('name') or rows[i]['v'] }}{{ ' ' if not loop.last else '' }}{% endfor %}"),
    ("newlines in literals", "{{- 'a\n' -}}\n{{- '\n<b>[{{\"x\"}}]' -}}\n  {{ (nothing | default('', true)).replace('/think', '').strip() ~ 'c' }}"),
    ("default binds before not", "{{ not missing | default(false) }} {{ 'x' + missing | default('u') + '{' }} {{ missing | default(true) }}"),
    ("same name inside", "{% set xs = xs[1:] if xs[0] == 3 else xs %}{{ xs }}{% for x in xs %}{% set x = x * 2 %}{{ x }}{% endfor %}{% set n = n | default(1) %}{{ n }}"),
    ("macro assigns a name it reads", "{% macro m() %}{% if who is not defined %}{% set who = 'me' %}{% endif %}{{ who }}{% endmacro %}{{ m() }}"),
    # ---- white space ----
    ("trim blocks", "{% if true %}\n  yes\n{% endif %}\nafter\n"),
    ("lstrip blocks", "a\n    {% if true %}\n  b\n    {% endif %}\n  c {% if true %}d{% endif %}\n"),
    ("minus", "a \n {%- if true -%} \n b \n {%- endif -%} \n c {{- ' d ' -}} \n e"),
    ("plus", "a\n  {%+ if true +%}\nb\n{% endif %}c"),
    ("comment white space", "a\n  {# x #}\nb {#- y -#} c\n"),
    ("raw white space", "  {%- raw -%}  {{ a }}  {%- endraw -%}  b"),
    ("variable keeps space", "  {{ n }}  \n  {{ n }}\n\n"),
    ("several tags on a line", "  {% set a = 1 %}  {% set b = 2 %}  {{ a }}{{ b }}\n  {% set c = 3 %}\nx"),
    ("tag at start and end", "{% set a = 1 %}\n{{ a }}\n{% set b = 1 %}"),
    ("multi line tag", "{% set x = {\n  'a': 1,\n  'b': [1,\n 2],\n} %}\n{{\n x\n}}"),
    # ---- filters ----
    ("tojson", "{{ d | tojson }} {{ [1, 1.5, none, true, 'a\"b\\\\c\\n\u00e9<>&\\u007f'] | tojson }} {{ () | tojson }} {{ 'x' | tojson }} {{ {} | tojson }} {{ {1: 2, none: 3, true: 4, 1.5: 5} | tojson }}"),
    ("tojson options", "{{ tools | tojson(indent=2) }}|{{ s | tojson(ensure_ascii=true) }}|{{ d | tojson(sort_keys=true) }}|{{ d | tojson(separators=(',', ':')) }}|{{ [] | tojson(indent=4) }}|{{ [[]] | tojson(indent=1) }}"),
    ("tojson big", "{{ ['\U0001f680', 1e20, 12345678901234, -0.0] | tojson(ensure_ascii=true) }}"),
    ("length", "{{ xs | length }} {{ s | length }} {{ d | length }} {{ missing | length }} {{ '\U0001f680' | count }}"),
    ("string trim", "[{{ spaced | trim }}] [{{ 'xxaxx' | trim('x') }}] {{ 5 | string + 'x' }} {{ none | string }} {{ [1] | string | length }} [{{ missing | trim }}]"),
    ("items", "{% for k, v in d | items %}{{ k }}{{ v }} {% endfor %}{{ missing | items | list }}"),
    ("join", "{{ xs | join(', ') }} {{ xs | join }} {{ rows | join('+', attribute='name') }} {{ 'abc' | join('.') }} {{ [none, true, 1.5] | join('/') }}"),
    ("default", "{{ missing | default('x') }} {{ missing | default }}|{{ empty | default('x') }}|{{ empty | default('x', true) }} {{ nothing | d('y', boolean=true) }} {{ zero | default(5) }} {{ missing | default(none) }}"),
    ("list", "{{ 'abc' | list }} {{ d | list }} {{ (1, 2) | list }} {{ missing | list }}"),
    ("selectattr", "{{ rows | selectattr('v', 'equalto', 2) | map(attribute='name') | join(',') }} {{ rows | selectattr('v') | list | length }} {{ rows | selectattr('sub.k', '==', 'q') | map(attribute='name') | list }} {{ rows | rejectattr('v', 'eq', 2) | map(attribute='name') | list }} {{ rows | selectattr('zz', 'defined') | list }}"),
    ("select reject", "{{ xs | select('gt', 1) | list }} {{ xs | reject('odd') | list }} {{ [0, 1, '', 'a', none] | select | list }} {{ [1, none] | reject('none') | list }} {{ range(6) | select('divisibleby', 3) | list }}"),
    ("map", "{{ words | map('upper') | join(',') }} {{ rows | map(attribute='sub.k') | list }} {{ ['a b'] | map('replace', ' ', '_') | list }} {{ rows | map(attribute='zz', default='?') | list }} {{ [[1, 2], [3, 4]] | map(attribute=0) | list }}"),
    ("dictsort", "{{ {'b': 1, 'A': 3, 'c': 2} | dictsort }} {{ {'b': 1, 'A': 3, 'c': 2} | dictsort(true) }} {{ {'b': 1, 'a': 3} | dictsort(by='value') }} {{ {'b': 1, 'a': 3} | dictsort(reverse=true) }}"),
    ("case", "{{ s | upper }} {{ s | lower }} {{ 'hELLO wORLD' | title }} {{ 'hELLO wORLD' | capitalize }} {{ '\u00c9\u00df' | lower }} {{ '\u03c3\u00e9' | upper }}"),
    ("indent", "{{ multi | indent }}|{{ multi | indent(2, first=true) }}|{{ multi | indent(width=1, blank=true) }}|{{ multi | indent('> ', true) }}"),
    ("int float", "{{ '42' | int + 1 }} {{ 'x' | int }} {{ 'x' | int(9) }} {{ '3.9' | int }} {{ 3.9 | int }} {{ 'ff' | int(0, 16) }} {{ '0x1A' | int(base=16) }} {{ '2.5' | float }} {{ 'y' | float(1.5) }} {{ 2 | float }} {{ true | int }} {{ ' 7 ' | int }} {{ none | int(5) }}"),
    ("replace", "{{ 'aXbXc' | replace('X', '-') }} {{ 'aXbXc' | replace('X', '-', 1) }} {{ 'abc' | replace('', '.') }} {{ 'aaa' | replace('aa', 'b') }} {{ 5 | replace(5, 6) }}"),
    ("unique sort", "{{ words | unique | list }} {{ words | sort }} {{ xs | sort(reverse=true) }} {{ words | sort(case_sensitive=true) }} {{ rows | sort(attribute='v') | map(attribute='name') | list }} {{ [1, 1.0, 2, true] | unique | list }} {{ rows | unique(attribute='v') | map(attribute='name') | list }}"),
    ("first last", "{{ xs | first }} {{ xs | last }} {{ 'abc' | first }} [{{ [] | first }}] {{ xs | reverse | list }} {{ 'abc' | reverse }}"),
    ("numbers filters", "{{ -3 | abs }} {{ neg | abs }} {{ 2.567 | round(2) }} {{ 2.5 | round }} {{ 7.2 | round(method='ceil') }} {{ xs | sum }} {{ xs | min }} {{ xs | max }} {{ rows | sum(attribute='v') }} {{ words | max }}"),
    ("format filter", "{{ '%s-%03d' | format('a', 7) }} {{ 'x' | format }}"),
    ("markup joined by operators", "{{ '<a>' + ('<b>' | safe) + '&' }} {{ ('<' | safe) ~ '<' }} {{ ('<' | safe) * 2 + '<' }}"),
    ("markup formats", "{{ ('<%s>%d' | safe) % ('<', 3) }} {{ ('<{}{x}>' | safe).format('<', x='>') }} {{ '<%s>' % ('<' | safe) }}"),
    ("markup methods", "{{ ('<a>' | safe).upper() + '<' }} {{ ('<,' | safe).join(['<', '>' | safe]) }}"
                       " {{ ('a<b' | safe).replace('<', '<<') }} {{ ('<a <b' | safe).split(' ')[1] + '<' }}"),
    ("markup slices", "{{ ('<a>' | safe)[0] + '<' }} {{ ('<a>' | safe)[1:] + '<' }} {{ ('<a>' | safe)[::2] + '<' }}"),
    ("markup through filters", "{{ ('<a>' | safe | upper) + '<' }} {{ (' <a>' | safe | trim) + '<' }} {{ ('<a>' | safe | title) + '<' }}"
                               " {{ ('<a>' | safe | replace('<', '<<')) + '<' }} {{ ('<' | safe | string) + '<' }}"
                               " {{ ('<' | safe | indent) + '<' }} {{ (['<' | safe, '<'] | join('>')) + '<' }}"),
    ("markup escapes once", "{{ '<' | e | e }} {{ '<' | e | forceescape }} {{ ('<' | e) + '<' }} {{ '<' | safe | e }}"),
    ("markup in blocks", "{% set a %}<{{ '<' | safe }}{% endset %}{{ a + '<' }}{% macro m() %}<{% endmacro %}{{ m() + '<' }}"),
    ("markup is equal to its text", "{{ ('<' | safe) == '<' }} {{ {'<': 1}['<' | safe] }} {{ ('<' | safe) is string }}"),
    ("escape", "{{ '<a href=\"x\">&\\'</a>' | e }} {{ 'a' | safe }}"),
    ("filter chain in set", "{% set x = s | lower | replace('l', 'L') | trim %}{{ x }}{{ (xs | sort)[0] }}{{ xs | length > 2 }}{{ xs | length if false else 'k' }}"),
    # ---- tests ----
    ("defined tests", "{{ n is defined }} {{ missing is defined }} {{ missing is undefined }} {{ missing is not defined }} {{ d.zz is defined }} {{ d.a is defined }} {{ nothing is defined }}"),
    ("type tests", "{% for v in ['a', 1, 1.5, true, none, [], {}, ()] %}{{ v is string }} {{ v is integer }} {{ v is float }} {{ v is number }} {{ v is boolean }} {{ v is none }} {{ v is mapping }} {{ v is iterable }} {{ v is sequence }};{% endfor %}"),
    ("value tests", "{{ 4 is even }} {{ 4 is odd }} {{ 9 is divisibleby 3 }} {{ true is true }} {{ 1 is true }} {{ false is false }} {{ 'a' is in 'abc' }} {{ 2 is in [1] }} {{ 3 is eq 3 }} {{ 3 is gt 2 }} {{ 'abc' is lower }} {{ 'ABC' is upper }} {{ none is sameas none }} {{ range is callable }} {{ n is callable }}"),
    ("tests bind tightly", "{{ not missing is defined }} {{ 1 + n is defined }} {{ n is defined and n > 3 }} {{ 'y' if n is string else 'z' }} {{ n is not string and yes }}"),
    # ---- methods ----
    ("split", "{{ 'a,b,,c'.split(',') }} {{ ' a  b c '.split() }} {{ 'a b c'.split(' ', 1) }} {{ 'a b c d'.rsplit(' ', 2) }} {{ ' a  b c '.split(none, 1) }} {{ 'a b  c '.rsplit(none, 1) }} {{ 'x'.split('</think>')[-1] }} {{ ''.split() }} {{ ''.split(',') }}"),
    ("strip", "[{{ spaced.strip() }}] [{{ spaced.lstrip() }}] [{{ spaced.rstrip() }}] [{{ '\\n\\na\\n'.strip('\\n') }}] [{{ 'xyaxy'.lstrip('yx') }}] [{{ '\u00a0a\u3000'.strip() }}]"),
    ("startswith", "{{ s.startswith('He') }} {{ s.endswith('d') }} {{ s.startswith(('x', 'H')) }} {{ s.endswith('') }}"),
    ("string methods", "{{ 'aXb'.replace('X', '-') }} {{ s.upper() }} {{ s.lower() }} {{ 'ab cd'.title() }} {{ 'aB'.capitalize() }} {{ s.find('W') }} {{ s.find('q') }} {{ 'abab'.count('ab') }} {{ '-'.join(['a', 'b']) }} {{ '12'.isdigit() }} {{ 'a1'.isalnum() }} {{ 'a\\nb'.splitlines() }} {{ 'abcabc'.rfind('b') }} {{ ' '.isspace() }} {{ 'ab'.isalpha() }}"),
    ("prefix methods", "{{ 'abc'.removeprefix('a') }} {{ 'abc'.removesuffix('c') }} {{ 'abc'.removeprefix('x') }}"),
    ("dict methods", "{{ d.keys() | list }} {{ d.values() | list }} {{ d.get('a') }} {{ d.get('zz') }} {{ d.get('zz', 5) }} {{ d.items() | list }}"),
    ("range", "{{ range(4) | list }} {{ range(1, 4) | list }} {{ range(5, 0, -2) | list }} {{ range(0) | list }}"),
    ("dict function", "{{ dict(a=1, b='x') }}"),
    ("strftime", "{{ strftime_now('%d %b %Y') }} {{ strftime_now('%Y-%m-%d %H:%M:%S %A %B %j') }}"),
    ("changing lists", "{% set l = [] %}{% set _ = l.append(1) %}{% set _ = l.append([2]) %}{% do l.extend((3, 4)) %}{{ l }} {{ l.pop() }} {{ l.pop(0) }} {{ l }} {% do l.insert(0, 'i') %}{{ l }} {{ l.index(3) }}", {"_changes": True}),
    ("changing dicts", "{% set q = {'a': 1} %}{% do q.update({'b': 2}) %}{{ q }} {{ q.pop('a') }} {{ q }} {{ q.pop('zz', 7) }}", {"_changes": True}),
    # ---- errors ----
    ("error: raise_exception", "{{ raise_exception('No user query found') }}"),
    ("error: undefined attribute", "{{ missing.x }}"),
    ("error: undefined call", "{{ missing() }}"),
    ("error: types", "{{ 1 + 'a' }}"),
    ("error: str plus none", "{{ 'a' + none }}"),
    ("error: undefined plus", "{{ missing + 'a' }}"),
    ("error: compare", "{{ 1 < 'a' }}"),
    ("error: division", "{{ 1 // 0 }}"),
    ("error: not iterable", "{% for x in 5 %}{% endfor %}"),
    ("error: not callable", "{{ n() }}"),
    ("error: no filter", "{{ n | nosuchfilter }}"),
    ("error: no test", "{{ n is nosuchtest }}"),
    ("error: unclosed if", "{% if n %}a"),
    ("error: unclosed tag", "{{ n "),
    ("error: unclosed string", "{{ 'a }}"),
    ("error: stray end", "a{% endfor %}"),
    ("error: unknown tag", "{% nosuchtag %}"),
    ("error: bracket", "{{ (1, 2] }}"),
    ("error: unpack", "{% for a, b in [(1, 2, 3)] %}{% endfor %}"),
    ("error: tojson of undefined", "{{ missing | tojson }}"),
    ("error: in number", "{{ 1 in 5 }}"),
    ("error: string in none", "{{ 1 in 'abc' }}"),
    ("error: break outside", "{% break %}"),
    ("error: assign to attribute", "{% set d.x = 1 %}"),
    ("error: macro arguments", "{% macro m(a) %}{% endmacro %}{{ m(1, 2) }}"),
    ("error: expected name", "{{ a. }}"),
    ("error: empty", "{{ }}"),
    ("error: sort mixed", "{{ [1, 'a'] | sort }}"),
]

CHATML = """{%- if tools %}
    {{- '<|im_start|>system\\n' }}
    {%- if messages[0].role == 'system' %}
        {{- messages[0].content + '\\n\\n' }}
    {%- endif %}
    {{- "# Functions\\n<list>" }}
    {%- for tool in tools %}
        {{- "\\n" }}
        {{- tool | tojson }}
    {%- endfor %}
    {{- "\\n</list><|im_end|>\\n" }}
{%- elif messages[0].role == 'system' %}
    {{- '<|im_start|>system\\n' + messages[0].content + '<|im_end|>\\n' }}
{%- endif %}
{%- set ns = namespace(last=messages | length - 1, open=true) %}
{%- for message in messages[::-1] %}
    {%- set index = (messages | length - 1) - loop.index0 %}
    {%- if ns.open and message.role == "user" and message.content is string and not (message.content.startswith('<r>') and message.content.endswith('</r>')) %}
        {%- set ns.open = false %}
        {%- set ns.last = index %}
    {%- endif %}
{%- endfor %}
{%- for message in messages %}
    {%- if message.content is string %}
        {%- set content = message.content %}
    {%- elif message.content is iterable and message.content is not mapping %}
        {%- set content %}
            {%- for part in message.content %}
                {%- if part.type == 'image' or 'image' in part %}<image>{% elif 'text' in part %}{{ part.text }}{% endif %}
            {%- endfor %}
        {%- endset %}
    {%- else %}
        {%- set content = '' %}
    {%- endif %}
    {%- if message.role == 'user' or (message.role == 'system' and not loop.first) %}
        {{- '<|im_start|>' + message.role + '\\n' + content + '<|im_end|>' + '\\n' }}
    {%- elif message.role == 'assistant' %}
        {%- set thought = '' %}
        {%- if message.reasoning_content is defined and message.reasoning_content is not none %}
            {%- set thought = message.reasoning_content %}
        {%- elif '</think>' in content %}
            {%- set thought = content.split('</think>')[0].rstrip('\\n').split('<think>')[-1].lstrip('\\n') %}
            {%- set content = content.split('</think>')[-1].lstrip('\\n') %}
        {%- endif %}
        {%- if loop.index0 > ns.last and thought %}
            {{- '<|im_start|>' + message.role + '\\n<think>\\n' + thought.strip('\\n') + '\\n</think>\\n\\n' + content }}
        {%- else %}
            {{- '<|im_start|>' + message.role + '\\n' + content }}
        {%- endif %}
        {%- for call in message.tool_calls or [] %}
            {%- set f = call.function if call.function else call %}
            {{- '\\n' if (loop.first and content) or not loop.first }}
            {{- '<call>{"name": "' ~ f.name ~ '", "arguments": ' }}
            {{- f.arguments if f.arguments is string else f.arguments | tojson }}
            {{- '}</call>' }}
        {%- endfor %}
        {{- '<|im_end|>\\n' }}
    {%- elif message.role == 'tool' %}
        {%- if loop.first or messages[loop.index0 - 1].role != 'tool' %}
            {{- '<|im_start|>user' }}
        {%- endif %}
        {{- '\\n<r>\\n' + content + '\\n</r>' }}
        {%- if loop.last or loop.nextitem.role != 'tool' %}
            {{- '<|im_end|>\\n' }}
        {%- endif %}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
    {%- if enable_thinking is defined and enable_thinking is false %}
        {{- '<think>\\n\\n</think>\\n\\n' }}
    {%- endif %}
{%- endif %}
"""

XML_TOOLS = """{%- macro attributes(map, known) %}
    {%- for key in map if key not in known %}
        {%- set value = map[key] %}
        {{- '\\n<' ~ key ~ '>' ~ (value | tojson | safe if value is mapping or (value is sequence and value is not string) else value | string) ~ '</' ~ key ~ '>' }}
    {%- endfor %}
{%- endmacro %}
{{- bos_token }}
{%- for tool in tools or [] %}
    {%- if tool.function is defined %}{% set tool = tool.function %}{% endif %}
    {{- '<function>\\n<name>' ~ tool.name ~ '</name>' }}
    {%- if tool.description is defined %}
        {{- '\\n<description>' ~ (tool.description | trim) ~ '</description>' }}
    {%- endif %}
    {%- if tool.parameters is defined and tool.parameters is mapping and tool.parameters.properties is defined %}
        {%- for name, field in tool.parameters.properties | items %}
            {{- '\\n<parameter>\\n<name>' ~ name ~ '</name>' }}
            {{- attributes(field, ['name', 'description']) }}
            {{- '\\n</parameter>' }}
        {%- endfor %}
        {{- attributes(tool.parameters, ['type', 'properties']) }}
    {%- endif %}
    {{- '\\n</function>\\n' }}
{%- endfor %}
{%- for m in messages %}
    {%- if m.role == 'assistant' and m.tool_calls is defined and m.tool_calls is iterable and m.tool_calls | length > 0 %}
        {%- for call in m.tool_calls %}
            {{- '<call><function=' + call.function.name + '>\\n' }}
            {%- for name, value in call.function.arguments | items %}
                {{- '<parameter=' + name + '>\\n' }}
                {%- set value = value if value is string else value | tojson %}
                {{- value }}
                {{- '\\n</parameter>\\n' }}
            {%- endfor %}
            {{- '</function></call>\\n' }}
        {%- endfor %}
    {%- else %}
        {{- m.role ~ ': ' ~ (m.content if m.content is string else m.content | selectattr('type', 'equalto', 'text') | map(attribute='text') | join(' ')) | trim ~ eos_token }}
    {%- endif %}
{%- endfor %}
"""

ALTERNATING = """{%- if messages[0]['role'] == 'system' -%}
{%- set first = messages[0]['content'] + '\\n\\n' -%}{%- set turns = messages[1:] -%}
{%- else -%}{%- set first = '' -%}{%- set turns = messages -%}{%- endif -%}
{{ bos_token }}
{%- for m in turns -%}
    {%- if (m['role'] == 'user') != (loop.index0 % 2 == 0) -%}
        {{ raise_exception("Roles must alternate user/assistant/user/assistant/...") }}
    {%- endif -%}
    {%- if m['role'] == 'user' -%}
        {{ '[INST] ' + (first if loop.first else '') + (m['content'] if m['content'] is string else m['content'][0]['text']) + ' [/INST]' }}
    {%- else -%}
        {{ ' ' + m['content'] | trim + eos_token }}
    {%- endif -%}
{%- endfor -%}
"""

DATED = """{%- if not date is defined %}{%- set date = strftime_now("%d %b %Y") %}{%- endif %}
{{- bos_token + "<|head|>system<|end|>\\n\\nCutoff: December 2023\\nToday: " + date + "\\n\\n" }}
{%- if tools is not none %}
    {%- for t in tools %}
        {{- t | tojson(indent=4) }}
        {{- "\\n\\n" }}
    {%- endfor %}
{%- endif %}
{%- for m in messages %}
    {%- if not (m.role == 'ipython' or m.role == 'tool' or 'tool_calls' in m) %}
        {{- '<|head|>' + m['role'] + '<|end|>\\n\\n' + m['content'] | string | trim + '<|stop|>' }}
    {%- elif 'tool_calls' in m %}
        {%- if not m.tool_calls | length == 1 %}
            {{- raise_exception("This model only supports single tool-calls at once!") }}
        {%- endif %}
    {%- endif %}
{%- endfor %}
"""

CHAT = [
    ("chatml", CHATML),
    ("xml tools", XML_TOOLS),
    ("alternating", ALTERNATING),
    ("dated", DATED),
]


def tojson(value, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def raise_exception(message):
    raise jinja2.exceptions.TemplateError(message)


def environment(changes_values):
    # Templates may change lists in the engine, but not in the reference's immutable sandbox.
    base = jinja2.sandbox.SandboxedEnvironment if changes_values else jinja2.sandbox.ImmutableSandboxedEnvironment
    env = base(trim_blocks=True, lstrip_blocks=True, extensions=[jinja2.ext.loopcontrols, jinja2.ext.do])
    env.filters["tojson"] = tojson
    env.globals["raise_exception"] = raise_exception
    env.globals["strftime_now"] = lambda form: NOW.strftime(form)
    return env


def render(template, variables):
    variables = dict(variables)
    env = environment(variables.pop("_changes", False))
    try:
        return {"expected": env.from_string(template).render(**variables)}
    except Exception as error:  # whatever it is, the engine has to refuse too
        return {"error": f"{type(error).__name__}: {error}"}


def cases():
    for name, template, *rest in CASES:
        variables = {**DATA, "tools": TOOLS, **(rest[0] if rest else {})}
        result = render(template, variables)
        variables.pop("_changes", None)
        if name.startswith("error") != ("error" in result):
            raise SystemExit(f"case '{name}' gave {result}")
        yield {"name": name, "template": template, "variables": "data", **result}
    for name, template in CHAT:
        for label, messages, extra in [
            ("text", MESSAGES[:3], {}),
            ("parts", MESSAGES, {}),
            ("no prompt", MESSAGES[:3], {"add_generation_prompt": False}),
            ("tools", CALLS, {"tools": TOOLS}),
            ("no thinking", MESSAGES[:2], {"enable_thinking": False}),
        ]:
            variables = {
                "messages": messages,
                "tools": None,
                "add_generation_prompt": True,
                "bos_token": "<s>",
                "eos_token": "</s>",
                **extra,
            }
            yield {
                "name": f"chat {name}: {label}",
                "template": template,
                "variables": variables,
                **render(template, variables),
            }


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", default="tests/unit/text/data/jinja.json")
    args = parser.parse_args()
    rows = list(cases())
    document = {"data": {**DATA, "tools": TOOLS}, "cases": rows}
    with open(args.out, "w", encoding="ascii") as out:
        out.write('{"data": ' + json.dumps(document["data"]) + ',\n"cases": [\n')
        out.write(",\n".join(json.dumps(row) for row in rows) + "\n]}\n")
    print(f"{args.out}: {len(rows)} cases")


if __name__ == "__main__":
    main()
