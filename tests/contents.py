#!/usr/bin/env python3
"""contents.py - what memopt.h's markers say about its groups, and the lines of the file that repeat it.

The CONTENTS of the banner name the groups and the sections of each. From the markers follows what a group needs: its own
sections, what they use (`@section NAME : uses`), and for every declaration taken the section that defines it. From that follow

    #if MEMOPT_I_GROUPS & 0x.. ... #endif      around every run of sections that the same groups need
    CONTENTS                                   a row for each section, in the order of the file
    INDEX                                      the headings (/* ---- name ---- */) of each section

Usage: contents.py [--write | --merge | --lines | --why GROUP SECTION | --parts FILE | --loose] [memopt.h]
    (nothing)  compare; exit status 1 and the first difference when the file says something else, or no row of CONTENTS
               names a section
    --write    bring the file up to date: a new section gets a row below its neighbour's, in its first sentence's words,
               and it is printed
    --lines    what each group needs, in lines
    --why      by which way a group needs a section
    --merge    a merge or rebase that stopped at memopt.h: once more, without the lines that follow from markers
    --parts    FILE: the sections whose names it writes, for `make header PARTS=...`
    --loose    uses that a marker names and its section does without
       contents.py --selftest
"""
import collections, difflib, os, re, subprocess, sys, tempfile
sys.path.insert(0, os.path.dirname(os.path.realpath(__file__)))
import check_layers

MARK = re.compile(r'^/\* @section ([a-z][a-z0-9_]*) :((?: [a-z0-9_]+)*)(?: \*/)?$', re.M) # as header.awk reads it
ANY_MARK = re.compile(r'^[ \t]*(?:/\*+|\*|//)[ \t]*@section.*', re.M)
BEGIN = '#if MEMOPT_I_GROUPS & '
ONCE = '#ifndef MEMOPT_I_WIDTH /* of a group */'
END = '#endif /* groups */'
WIDE = re.compile(r'^#endif /\* ---- from here: once for each width', re.M)
HEADING = re.compile(r'^/\* ---- (.*?)(?: ----(?: \*/)?| -)?$', re.M)
PUBLIC = re.compile(r'^MEMOPT_API\b[^;{]*?\b(memopt_\w+)\s*\([^;{]*([;{])', re.M)
FIRST_BODY = 'platform'          # where the implementation begins
WITH = {'vec': 'widths'}         # who is taken takes the second along, though it stands below
ALWAYS = 'groups', 'config', 'api_end', 'end'
COLUMNS = 120

class Broken(Exception):
    pass

def without_group_lines(source):
    return ''.join(line for line in source.splitlines(True)
                   if not line.startswith(BEGIN) and line.rstrip('\n') not in (ONCE, END))

class Header:
    def __init__(self, source):
        self.source = without_group_lines(source)
        marks = list(MARK.finditer(self.source))
        for line in ANY_MARK.findall(self.source):
            if not MARK.fullmatch(line):
                raise Broken(f'not "/* @section NAME : uses": {line}')
        if not marks:
            raise Broken('no @section')
        self.head = self.source[:marks[0].start()]
        self.names, self.text, self.uses = [], {}, {}
        for i, mark in enumerate(marks):
            name = mark.group(1)
            if name in self.text:
                raise Broken(f'two sections {name}')
            self.names.append(name)
            self.text[name] = self.source[mark.start():marks[i + 1].start() if i + 1 < len(marks) else len(self.source)]
            self.uses[name] = mark.group(2).split()
            depth = 0                                      # else a group without the next section has all that follows small
            for begins in re.findall(r'^ *MEMOPT_I_SMALL_(?:(BEGIN)|END)', self.text[name], re.M):
                depth += 1 if begins else -1
                if depth not in (0, 1):
                    break
            if depth:
                raise Broken(f'section {name}: MEMOPT_I_SMALL_BEGIN and _END are no pairs')
        for name in ALWAYS + (FIRST_BODY,):
            if name not in self.text:
                raise Broken(f'no section {name}')
        self.read_contents()
        self.place_new_sections()
        self.find_needs()

    # ---- the banner ----
    def read_contents(self):
        found = re.search(r'\n   CONTENTS .*?\n\n', self.head, re.S)
        if not found:
            raise Broken('no CONTENTS in the banner')
        self.contents_at = found.span()
        lines = found.group(0).strip('\n').split('\n')
        first = next((i for i, l in enumerate(lines) if re.match(r'     [A-Z]+ ', l)), None)
        if first is None:
            raise Broken('CONTENTS name no group')
        self.preface = lines[:first]
        self.groups, self.group_words, self.group_of, self.words = [], {}, {}, {}
        for line in lines[first:]:
            group = re.match(r'     ([A-Z]+) +(.*)', line)
            if group:
                self.groups.append(group.group(1))
                self.group_words[group.group(1)] = group.group(2)
                continue
            row = re.fullmatch(r'     (api_)? *(\w+)(?:  +(.*))?', line)
            if not row:
                raise Broken(f'a row of CONTENTS: {line}')
            for name in [row.group(2), 'api_' + row.group(2)][:2 if row.group(1) else 1]:
                self.group_of[name] = self.groups[-1]
                self.words[name] = row.group(3) or ''

    def place_new_sections(self):
        """A section that CONTENTS do not name belongs to the group of the one above it in the file, until somebody says else."""
        self.placed = []
        before = self.groups[0]
        for name in self.names:
            if name not in self.group_of:
                self.group_of[name] = before
                if name not in ALWAYS:
                    self.placed.append(name)
            if name in ALWAYS and name != 'config':
                continue
            before = self.group_of[name]

    def first_words(self, name):
        essay = re.match(r'/\* @section [^\n*]*\n(.*?)(?:\*/|\n\s*\n)', self.text[name], re.S)
        words = re.sub(r'\s+', ' ', essay.group(1)).strip() if essay else ''
        words = re.split(r'(?<=\w)[.;:](?: |$)', words)[0]
        return words[:1].lower() + words[1:] if words[1:2].islower() else words

    def contents(self):
        rows = []                                          # of a group: its name twice
        for group in self.groups:
            rows.append((group, group, self.group_words[group]))
            members = [n for n in self.names if self.group_of[n] == group and n not in ALWAYS[2:] and n != 'groups']
            for name in members:
                body = name[4:] if name.startswith('api_') else name
                api = 'api_' + body
                words = self.words.get(body) or self.words.get(api) or self.first_words(name)
                if name == api and body not in members:
                    rows.append(('', api, words))
                elif name == body:
                    rows.append(('api_' if api in members else '', body, words))
        wide = max(len(name) for _, name, _ in rows)
        lines = list(self.preface)
        for group, name, words in rows:
            line = f'     {group:{wide + 5}}  {words}' if name == group else f'     {group:4} {name:{wide}}  {words}'
            lines.append(line.rstrip())
        return lines

    def index(self):
        lines = ['   INDEX       Headings of the sections that have them: search for "---- NAME".']
        for name in self.names:
            headings = [re.sub(r'\s+', ' ', m.group(1)).strip().rstrip(':') for m in HEADING.finditer(self.text[name])]
            if not headings:
                continue
            line = f'     {name:<16} '
            start = len(line)
            for i, heading in enumerate(headings):
                heading += ';' if i + 1 < len(headings) else ''
                if len(line) + len(heading) + 1 > COLUMNS and line.strip() and len(line) > start:
                    lines.append(line.rstrip())
                    line = ' ' * start
                line += heading + ' '
            lines.append(line.rstrip())
        return lines

    def new_head(self):
        start, end = self.contents_at
        rest = self.head[end:]
        old = re.match(r'   INDEX  .*?\n\n', rest, re.S)
        if old:
            rest = rest[old.end():]
        text = '\n'.join(self.contents()) + '\n\n' + '\n'.join(self.index()) + '\n\n'
        return self.head[:start] + '\n' + text + rest

    # ---- who needs whom ----
    def find_needs(self):
        declared, defined = {}, collections.defaultdict(set)
        body = self.names.index(FIRST_BODY)
        for i, name in enumerate(self.names):
            code = check_layers.blank_comments_and_strings(self.text[name])
            for match in PUBLIC.finditer(code):
                if i < body and match.group(2) == ';':
                    declared[match.group(1)] = name
                if i >= body and match.group(2) == '{':
                    defined[match.group(1)].add(name)
        self.needs = {}
        for name in self.names:
            unknown = [u for u in self.uses[name] if u not in self.text]
            if unknown:
                raise Broken(f'section {name} uses {unknown[0]}, which is none')
            self.needs[name] = set(self.uses[name])
            if name in WITH:
                self.needs[name].add(WITH[name])
        for function, name in declared.items():
            if function not in defined:
                raise Broken(f'{function} of {name} is defined nowhere')
            self.needs[name] |= defined[function]
        self.mask = dict.fromkeys(self.names, 0)
        for bit, group in enumerate(self.groups[1:]):
            for name in self.closure(self.own(group)):
                self.mask[name] |= 1 << bit
        self.all = (1 << len(self.groups) - 1) - 1
        for name in ALWAYS:
            self.mask[name] = self.all
        for name in self.names:
            if not self.mask[name]:
                raise Broken(f'no group needs section {name}')

    def own(self, group):
        """Its sections, and those that its words name: "(with host_threads)", which its users want."""
        named = re.search(r'\(with ([\w ]+)\)', self.group_words[group])
        named = named.group(1).split() if named else []
        if any(n not in self.text for n in named):
            raise Broken(f'{group}: (with {" ".join(named)})')
        return [n for n in self.names if self.group_of[n] == group or n.removeprefix('api_') in named]

    def closure(self, names):
        seen, todo = set(), list(names)
        while todo:
            name = todo.pop()
            if name not in seen:
                seen.add(name)
                todo += self.needs[name]
        return seen

    def way(self, group, section):
        came = dict.fromkeys(self.own(group))
        todo = collections.deque(came)
        while todo:
            name = todo.popleft()
            if name == section:
                way = []
                while name:
                    way.append(name)
                    name = came[name]
                return way[::-1]
            for need in sorted(self.needs[name]):
                if need not in came:
                    came[need] = name
                    todo.append(need)
        return []

    def parts(self, path):
        """Sections that define what a source names, itself or by what it includes with a path of its own."""
        owner = {}
        for i, name in enumerate(self.names):
            code = re.sub(r'\b[VR]\((\w+)\)', r'memopt_i_v1_\1', check_layers.blank_comments_and_strings(self.text[name]))
            for word, kind, _ in check_layers.definitions(code, 0):
                if kind != 'prototype' or word not in owner:
                    owner[word] = name
        sources, done = [path], set()
        words = set()
        while sources:
            source = sources.pop()
            if source in done or os.path.basename(source) in ('memopt.h', 'test.h'):
                continue
            done.add(source)
            text = open(source).read()
            for included in re.findall(r'^ *# *include "([^"]+)"', text, re.M):
                for folder in os.path.dirname(source), '.', 'tests':
                    if os.path.exists(os.path.join(folder, included)):
                        sources.append(os.path.normpath(os.path.join(folder, included)))
                        break
            words |= set(re.findall(r'\b(?:memopt|MEMOPT)_\w+', check_layers.blank_comments_and_strings(text)))
        found = {owner[word] for word in words if word in owner} - set(ALWAYS) - {FIRST_BODY}
        return [name for name in self.names if name in found]

    # ---- the file ----
    def begin(self, mask):
        who = ', '.join(g.lower() for i, g in enumerate(self.groups[1:]) if mask >> i & 1)
        return f'{BEGIN}0x{mask:02x} /* for {who} */'

    def whole(self):
        """The file with the lines that its markers ask for."""
        body = self.names.index(FIRST_BODY)
        runs = []                                          # [mask, has wide code, names], in each half
        for i, name in enumerate(self.names):
            wide = i >= body and bool(WIDE.search(self.text[name]))
            if i == body or not runs or runs[-1][0] != self.mask[name]:
                runs.append([self.mask[name], False, []])
            runs[-1][1] |= wide
            runs[-1][2].append(name)
        out, close = [self.new_head()], []
        for mask, wide, names in runs:
            lines = list(close)
            if mask == self.all:
                close = []
            elif wide:                                     # the group outside, the readings inside
                if lines[-1:] == [ONCE]:
                    lines.pop()
                else:
                    lines.append(END)
                lines += [self.begin(mask), ONCE]
                close = [END, END, ONCE]
            else:
                lines.append(self.begin(mask))
                close = [END]
            out += [line + '\n' for line in lines]
            out += [self.text[name] for name in names]
        return ''.join(out)

def tell_placed(header, path):
    for name in header.placed:
        row = next(r for r in header.contents() if re.match(f'     (?:api_)? *(?:api_)?{name.removeprefix("api_")}(?:  |$)', r))
        print(f'{path}: section {name} is placed in {header.group_of[name]}: {row.strip()}')

def check(path, write):
    source = open(path).read()
    header = Header(source)
    wanted = header.whole()
    if header.placed and not write:
        for name in header.placed:
            print(f'{path}: no row of CONTENTS names section {name}: write one, or --write places it in {header.group_of[name]}')
        return 1
    if wanted == source:
        print(f'{path}: {len(header.names)} sections in {len(header.groups) - 1} groups, '
              f'{wanted.count(BEGIN)} runs of sections, contents and index as they stand')
        return 0
    if write:
        open(path + '.new', 'w').write(wanted)
        os.rename(path + '.new', path)
        tell_placed(header, path)
        print(f'{path}: brought up to date')
        return 0
    difference = list(difflib.unified_diff(source.split('\n'), wanted.split('\n'), 'memopt.h', 'as its markers say', lineterm='', n=1))
    print('\n'.join(difference[:20]))
    print(f'{path}: not as its markers say: python3 tests/contents.py --write')
    return 1

def show_lines(header):
    sizes = {name: header.text[name].count('\n') for name in header.names}
    print(f'{"section":20} {"lines":>6}  groups')
    for name in header.names:
        print(f'{name:20} {sizes[name]:6}  ' + ''.join(g[0] if header.mask[name] >> i & 1 else '.' for i, g in enumerate(header.groups[1:])))
    for i, group in enumerate(header.groups[1:]):
        print(f'{group:20} {sum(sizes[n] for n in header.names if header.mask[n] >> i & 1):6}')

def show_loose(header, path):
    """Uses that are named, but of which no name stands in the section."""
    said = subprocess.run([sys.executable, check_layers.__file__, '--prefix', 'memopt|MEMOPT|V_|V|R', '--graph', path], capture_output=True, text=True).stdout
    used = collections.defaultdict(set)
    for a, b in re.findall(r'^  (\w+) -> (\w+):', said, re.M):
        used[a].add(b)
    for name in header.names:
        loose = [u for u in header.uses[name] if u not in used[name]]
        if loose:
            print(f'{name}: {" ".join(loose)}')

def merge(path):
    """The three versions of a file in conflict, merged without what this script writes; then it is written anew."""
    plain, contents = {}, {}
    place = '\n   @@\n\n'
    with tempfile.TemporaryDirectory() as folder:
        for stage in 1, 2, 3:
            text = without_group_lines(subprocess.run(['git', 'show', f':{stage}:{path}'], capture_output=True, text=True, check=True).stdout)
            found = re.search(r'\n   CONTENTS .*?\n\n(?:   INDEX  .*?\n\n)?', text, re.S)
            contents[stage] = found.group(0)
            plain[stage] = os.path.join(folder, str(stage))
            open(plain[stage], 'w').write(text[:found.start()] + place + text[found.end():])
        merged = subprocess.run(['git', 'merge-file', '-p', plain[2], plain[1], plain[3]], capture_output=True, text=True)
    open(path, 'w').write(merged.stdout.replace(place, contents[2], 1))
    if merged.returncode:
        print(f'{path}: {merged.returncode} conflicts are left in it; then --write')
        return 1
    header, other = Header(open(path).read()), Header(merged.stdout.replace(place, contents[3], 1))
    header.words = {**other.words, **header.words}
    open(path, 'w').write(header.whole())
    tell_placed(header, path)
    return check(path, False)

PLANTED = '''/* small.h
   CONTENTS    words
     BASE           below
          config    version
     api_ a         first
          platform  system
          e         what users of memory want
     MEMORY         memory (with e)
     api_ b         second
     NUMBERS        numbers
          vec       words of wide code
     api_ c         third
          widths    again

   NOT HERE */
/* @section groups : */
/* @section config : groups */
/* @section api_a : config */
MEMOPT_API int memopt_a(void);
/* @section api_b : api_a */
MEMOPT_API int memopt_b(void);
/* @section api_c : api_a */
MEMOPT_API int memopt_c(int x,
                        int y);
/* @section api_end : config */
/* @section platform : config */
/* @section a : platform api_a */
MEMOPT_API int memopt_a(void) { return 0; }
/* @section e : platform */
/* @section b : a api_b */
/* ---- one heading ---- */
MEMOPT_API int memopt_b(void) { return memopt_a(); }
/* @section vec : a */
#endif /* ---- from here: once for each width, see `vec` ---- */
#ifndef MEMOPT_I_WIDTH /* ---- from here: once ---- */
/* @section c : vec api_c
   The third section. It adds. */
MEMOPT_API int memopt_c(int x,
                        int y) { return x + y; }
/* @section widths : vec */
/* @section end : platform */
'''

def selftest():
    header = Header(PLANTED)
    whole = header.whole()
    assert header.mask['a'] == 3 and header.mask['b'] == header.mask['e'] == 1 and header.mask['vec'] == header.mask['widths'] == 2, header.mask
    assert Header(whole).whole() == whole                  # stable
    assert without_group_lines(whole).count('#endif') == PLANTED.count('#endif')
    assert '#if MEMOPT_I_GROUPS & 0x02 /* for numbers */\n#ifndef MEMOPT_I_WIDTH /* of a group */\n/* @section vec' in whole, whole
    assert 'b                one heading' in whole, whole
    assert header.way('NUMBERS', 'a') == ['vec', 'a']
    for old, new, what in (('0x02', '0x03', 'a wrong #if'), (END + '\n', '', 'no #endif'), ('     api_ c ', '          c ', 'a wrong row'),
                           ('one heading\n\n', 'another\n\n', 'a wrong index')):
        bad = whole.replace(old, new, 1)
        assert bad != whole, what
        with tempfile.NamedTemporaryFile('w', suffix='.h', delete=False) as f:
            f.write(bad)
        stdout, sys.stdout = sys.stdout, open(os.devnull, 'w')
        try: found = check(f.name, False)
        except Broken: found = 1
        finally: sys.stdout = stdout; os.unlink(f.name)
        assert found, what + ' is not found'
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, 'small.h')
        open(path, 'w').write(whole.replace('/* @section widths', '/* @section d : c\n   Another one, below: it counts. */\n/* @section widths', 1))
        said = [subprocess.run([sys.executable, __file__, *option, path], capture_output=True, text=True) for option in ([], ['--write'], [])]
        assert [s.returncode for s in said] == [1, 0, 0], said
        assert 'names section d: ' in said[0].stdout and 'd is placed in NUMBERS: d         another one, below\n' in said[1].stdout, said
    for mark in '/*  @section d : c */', '/* @section D : c */', '/* @section d: c */', '// @section d : c', ' * @section d : *':
        try: Header(PLANTED.replace('/* @section widths', mark + '\n/* @section widths', 1)); assert False, mark
        except Broken: pass
    more = Header(whole.replace('/* @section widths', '/* @section d : c\n   Another one, below: it counts. */\n/* @section widths', 1))
    assert more.group_of['d'] == 'NUMBERS' and '     d         another one, below\n' in more.whole(), more.whole()
    for old, new in (('/* @section b : a api_b', '/* @section b : a nothing'), ('memopt_b(void) {', 'memopt_d(void) {'),
                     ('/* ---- one heading', 'MEMOPT_I_SMALL_BEGIN\n/* ---- one heading'),
                     ('/* ---- one heading', 'MEMOPT_I_SMALL_END\nMEMOPT_I_SMALL_BEGIN\n/* ---- one heading')):
        try: Header(PLANTED.replace(old, new, 1)); assert False, old
        except Broken: pass
    print('selftest ok')

def main():
    arguments = sys.argv[1:]
    if arguments == ['--selftest']:
        return selftest()
    options = {'--write': 0, '--merge': 0, '--lines': 0, '--loose': 0, '--why': 2, '--parts': 1}
    option = arguments.pop(0) if arguments and arguments[0].startswith('-') else None
    if option and option not in options:
        sys.exit(__doc__)
    given = [arguments.pop(0) for _ in range(options.get(option, 0))]
    path = arguments[0] if arguments else 'memopt.h'
    try:
        if option == '--merge':
            sys.exit(merge(path))
        if option in (None, '--write'):
            sys.exit(check(path, option == '--write'))
        header = Header(open(path).read())
        if option == '--lines': show_lines(header)
        if option == '--loose': show_loose(header, path)
        if option == '--parts': print(' '.join(header.parts(given[0])))
        if option == '--why': print(' -> '.join(header.way(given[0].upper(), given[1])) or 'it does not')
    except Broken as broken:
        sys.exit(f'{path}: {broken}')

if __name__ == '__main__':
    main()
