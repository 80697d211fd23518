#!/usr/bin/env python3
"""check_users.py - every public function of memopt.h is called by something that a reader can run.

Public are MEMOPT_API, and what is MEMOPT_I_INLINE without memopt_i_. Users are the examples with their parts, the tools of
the tests, and memopt_cuda.cu. A user calls a function, or takes its address as a value. A name in a comment, in a text or
in a macro's body is no use; a macro of memopt.h that a user writes (MEMOPT_PUSH) is one of the functions in its body.

Usage: check_users.py [--list] [DIR]     (--list: every function with its first user)
       check_users.py --selftest
"""
import glob, os, re, sys, tempfile

DIRECTIVE = re.compile(r'^[ \t]*#(?:[^\n\\]|\\.|\\\n)*', re.M)
DEFINE = re.compile(r'^[ \t]*#[ \t]*define[ \t]+(MEMOPT_\w+)\(([^\n\\]|\\.|\\\n)*', re.M)
DECLARATION = re.compile(r'^(?:MEMOPT_API|MEMOPT_I_INLINE)\b[^;{(]*?\b(memopt_(?!i_)\w+)\s*\(', re.M)
CALL = re.compile(r'\b((?:memopt|MEMOPT)_\w+)\s*\(')
ADDRESS = re.compile(r'(?:&|[=,?:{]|(?<!sizeof)\(|\breturn\b)\s*(?:\([\w ]+\*?\)\s*)?(memopt_\w+)\s*(?=[,;)}:])')
USERS = ['examples/**/*.c', 'examples/**/*.cpp', 'examples/**/*.cu', 'examples/**/*.h', 'tests/*_tool.c', 'memopt_cuda.cu']

def without_comments_and_texts(source):
    pattern = re.compile(r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])+\'', re.S)
    return pattern.sub(lambda m: re.sub(r'[^\n]', ' ', m.group(0)), source)

def read(path):
    return without_comments_and_texts(open(path, errors='replace').read().replace('\r\n', '\n'))

def check(folder):
    """{name: (line of its declaration, first user or None)}, in the order of the declarations"""
    header = read(os.path.join(folder, 'memopt.h'))
    public = {}
    for match in DECLARATION.finditer(header):
        public.setdefault(match.group(1), header.count('\n', 0, match.start(1)) + 1)
    macros = {m.group(1): set(re.findall(r'\bmemopt_\w+', m.group(0))) & set(public) for m in DEFINE.finditer(header)}
    user = {}
    paths = sorted({p for pattern in USERS for p in glob.glob(os.path.join(folder, pattern), recursive=True)})
    for path in paths:
        source = DIRECTIVE.sub('', read(path))
        for name in CALL.findall(source) + ADDRESS.findall(source):
            for function in macros.get(name, ()) if name in macros else (name,):
                user.setdefault(function, os.path.relpath(path, folder))
    return {name: (line, user.get(name)) for name, line in public.items()}

def selftest():
    header = '''MEMOPT_API int memopt_called(void);
MEMOPT_API int *memopt_lonely(int x,
                              int y);
MEMOPT_API int memopt_by_macro(int x);
#define MEMOPT_MACRO(x) \\
    memopt_by_macro(x)
MEMOPT_I_INLINE int memopt_i_private(int x) { return x; }
MEMOPT_I_INLINE int memopt_inline(int x) { return memopt_i_private(x); }
MEMOPT_API int memopt_by_address(int x);
MEMOPT_API int memopt_called(void) { return 0; }
'''
    example = '''/* memopt_lonely() */ // memopt_lonely(1, 2)
#define CALL() \\
    memopt_lonely(1, 2)
const char *s = "memopt_lonely(1, 2)"; int f(void) { return memopt_called() + MEMOPT_MACRO(1); }
'''
    lonely = ['memopt_lonely', 'memopt_inline', 'memopt_by_address']
    for more, offenders in (('', lonely), ('int *g(void) { return memopt_lonely(1, 2); }\n', lonely[1:]),
                            ('struct memopt_lonely *p; int x = s.memopt_inline + (int)sizeof(memopt_by_address);\n', lonely),
                            ('int (*g)(int) = memopt_by_address; int y = h(memopt_lonely, (fn *)memopt_inline);\n', []),
                            ('int (*g)(int) = &memopt_by_address;\n', lonely[:2])):
        with tempfile.TemporaryDirectory() as folder:
            os.mkdir(os.path.join(folder, 'examples'))
            open(os.path.join(folder, 'memopt.h'), 'w').write(header)
            open(os.path.join(folder, 'examples', 'a.c'), 'w').write(example + more)
            found = check(folder)
            assert list(found) == ['memopt_called', 'memopt_lonely', 'memopt_by_macro', 'memopt_inline', 'memopt_by_address'], found
            assert [n for n, (l, u) in found.items() if not u] == offenders, found
    print('selftest ok')

def main():
    arguments = sys.argv[1:]
    if arguments == ['--selftest']:
        return selftest()
    show = '--list' in arguments
    folders = [a for a in arguments if a != '--list'] or ['.']
    found = check(folders[0])
    lonely = [(line, name) for name, (line, user) in found.items() if not user]
    if len(found) < 100:
        sys.exit(f'check_users.py: only {len(found)} public functions found in memopt.h')
    if show:
        for name, (line, user) in found.items():
            print(f'{name:40} {user or "-"}')
    for line, name in lonely:
        print(f'memopt.h:{line}: {name} is called by no example, part, tool or memopt_cuda.cu')
    print(f'{len(found)} public functions, {len(lonely)} without a user')
    sys.exit(1 if lonely else 0)

main()
