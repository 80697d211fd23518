#!/usr/bin/env python3
"""check_page.py PAGE.html [CHART.svg]: looks at the ladder's page as people do, in a browser. Well-formed, nothing from
elsewhere; and in light, dark and on a phone the colours of each tag cover the area that the figures say. Exit status 77
when there is no Chromium; $CHROMIUM names another one."""
import base64, os, re, shutil, subprocess, sys, tempfile, zlib
import xml.etree.ElementTree as ET
from collections import Counter

import tally
from tally import check

def nothing_from_elsewhere(text, name):
    rest = re.sub(r'xmlns="http://www\.w3\.org/2000/svg"', '', text)
    for word in ('http:', 'https:', '//cdn', '<script', '<link', '@import', 'url(', '<iframe'):
        check(word not in rest, f'{name} refers to something elsewhere: {word}')
    for source in re.findall(r'(?:src|href)="([^"]*)"', rest):
        if not source.startswith('data:image/svg+xml;base64,'):
            check(False, f'{name} loads {source[:60]}')
            continue
        svg = base64.b64decode(source.split(',', 1)[1]).decode()
        nothing_from_elsewhere(svg, 'a picture in ' + name)
        ET.fromstring(svg)

# -- what should be there --
def numbers(style, key): return float(re.search(key + r':([\d.]+)', style).group(1))
def bars(page):
    """of each bar in the section: {tag: percent of the track}"""
    out = []
    for bar in page.iter('div'):
        if bar.get('class') != 'bar': continue
        out.append(Counter())
        for u in bar.findall('u'): out[-1][u.get('class').split()[0]] += numbers(u.get('style'), 'width')
    return out
def area(path):
    """of the steps of page_areas(), as a part of the plot"""
    x = y = total = 0.0
    for op, number in re.findall(r'([HV])([\d.e+]+)', path):
        if op == 'H': total += (float(number) - x) * y; x = float(number)
        else: y = 1000 - float(number)
    return total / 1e6
def panels(page):
    """of each plot of a step: {tag: part of the plot that shows it}, height in CSS pixels"""
    out = []
    for plot in page.iter('div'):
        if plot.get('class') != 'plot': continue
        paths = [(p.get('class'), area(p.get('d'))) for p in plot.iter('path') if (p.get('class') or '')[0] == 't']
        if not paths: continue
        below = [a for _, a in paths[1:]] + [0.0]
        out.append(({tag: a - b for (tag, a), b in zip(paths, below)}, numbers(plot.get('style'), '--h')))
    return out

# -- a browser and its pictures --
def png(name):
    """width, height, rows of RGB bytes"""
    data, at, packed = open(name, 'rb').read(), 8, b''
    while at < len(data):
        size, kind = int.from_bytes(data[at:at + 4], 'big'), data[at + 4:at + 8]
        body = data[at + 8:at + 8 + size]
        if kind == b'IHDR':
            width, height = int.from_bytes(body[:4], 'big'), int.from_bytes(body[4:8], 'big')
            depth, colour = body[8], body[9]
        if kind == b'IDAT': packed += body
        at += 12 + size
    assert depth == 8 and colour in (2, 6), 'PNG of a kind that is not read here'
    n = 3 if colour == 2 else 4
    raw, stride, before, rows = zlib.decompress(packed), width * n, bytearray(width * n), []
    for y in range(height):
        kind, row = raw[y * (stride + 1)], bytearray(raw[y * (stride + 1) + 1:(y + 1) * (stride + 1)])
        if kind == 1:
            for i in range(n, stride): row[i] = (row[i] + row[i - n]) & 255
        elif kind == 2: row = bytearray((a + b) & 255 for a, b in zip(row, before))
        elif kind == 3:
            for i in range(stride): row[i] = (row[i] + ((before[i] + (row[i - n] if i >= n else 0)) >> 1)) & 255
        elif kind == 4:
            for i in range(stride):
                a, b, c = (row[i - n], before[i], before[i - n]) if i >= n else (0, before[i], 0)
                p, q, r = abs(b - c), abs(a - c), abs(a + b - 2 * c)
                row[i] = (row[i] + (a if p <= q and p <= r else b if q <= r else c)) & 255
        rows.append(bytes(row)); before = row
    if n == 4: rows = [bytes(v for i, v in enumerate(r) if i % 4 < 3) for r in rows]
    return width, height, rows
def pixels(row): return zip(row[0::3], row[1::3], row[2::3])

class Browser:
    def __init__(self, program, folder): self.program, self.folder, self.count = program, folder, 0
    def run(self, html, width, height, dark, *more):
        self.count += 1
        name = os.path.join(self.folder, f'page{self.count}.html')
        with open(name, 'w', encoding='utf-8') as f: f.write(html)
        if width < 500: # windows are not that narrow; frames are
            frame, name = name, os.path.join(self.folder, f'frame{self.count}.html')
            with open(name, 'w', encoding='utf-8') as f:
                f.write('<body style="margin:0"><script>onmessage=e=>document.title=e.data</script>'
                        f'<iframe src="{frame}" style="border:0;width:{width}px;height:{height}px"></iframe>')
        command = [self.program, '--headless=new', '--no-sandbox', '--disable-gpu', '--hide-scrollbars',
                   '--force-device-scale-factor=1', '--force-color-profile=srgb',
                   f'--user-data-dir={self.folder}/profile',
                   f'--blink-settings=preferredColorScheme={0 if dark else 1}',
                   f'--window-size={max(width, 500)},{height}', *more, 'file://' + name]
        return subprocess.run(command, capture_output=True, text=True, timeout=120)
    def picture(self, html, width, height, dark):
        shot = os.path.join(self.folder, 'shot.png')
        if os.path.exists(shot): os.remove(shot)
        done = self.run(html, width, height, dark, '--screenshot=' + shot)
        if not os.path.exists(shot): sys.exit('check_page.py: the browser made no picture:\n' + done.stderr[-2000:])
        w, h, rows = png(shot)
        return [row[:3 * min(width, w)] for row in rows]

def only(html, section):
    """the page with one section, and without the words on coloured ground"""
    hidden = f'section:not(#{section}),header,.tiles,footer,.legend,.bar u span,.bar i{{display:none}}'
    return html.replace('</head>', f'<style>{hidden}</style></head>')
def coloured(rows, colours, gap=None):
    """pixels of each tag, and the longest run of such pixels in a row; gap: the ground between two parts of a bar"""
    found, longest = Counter(), 0
    names = {rgb: tag for tag, rgb in colours.items()}
    for row in rows:
        run = 0
        for pixel in pixels(row):
            tag = names.get(pixel)
            if tag: found[tag] += 1; run += 1; longest = max(longest, run)
            elif run and pixel != gap: run = 0
    return found, longest

def compare(found, want, where):
    for tag, area in want.items():
        check(abs(found[tag] - area) <= 0.07 * area + 0.012 * sum(want.values()),
              f'{where}: {tag} covers {found[tag]} pixels, and should about {area:.0f}')
def look(browser, html, page, colours, width, dark):
    where = f'{"dark" if dark else "light"}, {width} pixels wide'
    narrow = width < 700
    every = bars(page)
    rows = browser.picture(only(html, 'bars'), width, 3000 if narrow else 1400, dark)
    ground = tuple(rows[2][6:9])
    card = Counter(p for row in rows[60:200] for p in pixels(row)).most_common(1)[0][0]
    check((sum(ground) < 200) if dark else (sum(ground) > 600), f'{where}: the ground is {ground}')
    inks = Counter(sum(p) for row in rows[20:120] for p in pixels(row))
    check((max(inks) > 600) if dark else (min(inks) < 200), f'{where}: no text stands out from the ground')
    found, longest = coloured(rows, colours, card)
    track = longest / max(sum(b.values()) for b in every) # pixels of a percent
    check(longest > width * 0.45, f'{where}: the longest bar has {longest} pixels')
    want = Counter()
    for bar in every:
        for tag, percent in bar.items(): want[tag] += max(percent * track - 1, 0) * 25.6
    compare(found, want, where + ', bars')

    plots = panels(page)
    if plots:
        rows = browser.picture(only(html, 'step'), width, 2000 if narrow else 1000, dark)
        found, longest = coloured(rows, colours)
        check(longest > width * (0.5 if narrow else 0.15), f'{where}: plots of {longest} pixels')
        want = Counter()
        for parts, height in plots:
            for tag, part in parts.items(): want[tag] += part * longest * height * (0.75 if narrow else 1)
        compare(found, want, where + ', one step')

    curves = {p.get('stroke') for p in page.iter('path') if p.get('stroke')}
    if curves:
        rows = browser.picture(only(html, 'loss'), width, 1000 if narrow else 600, dark)
        seen, columns = Counter(), set()
        marks = [(c, tuple(int(c[i:i + 2], 16) for i in (1, 3, 5))) for c in curves]
        for row in rows:
            for x, p in enumerate(pixels(row)):
                if p == card: continue
                for name, rgb in marks:
                    if sum(abs(a - b) for a, b in zip(p, rgb)) < 60: seen[name] += 1; columns.add(x)
        for name in curves: check(seen[name] > 40, f'{where}: the curve in {name} is not to be seen')
        check(len(columns) > width * 0.55, f'{where}: curves reach over {len(columns)} columns only')
    if any(s.get('id') == 'strips' for s in page.iter('section')):
        rows = browser.picture(only(html, 'strips'), width, 700, dark)
        colours_seen = Counter(p for row in rows[150:] for p in pixels(row))
        check(sum(n > 100 for n in colours_seen.values()) > 6, f'{where}: the schedule is not drawn')

    measure = ('<script>onload=()=>{var w=document.documentElement.scrollWidth;document.title=w;'
               'parent.postMessage(String(w),"*")}</script></head>')
    title = re.search('<title>(\\d+)</title>', browser.run(html.replace('</head>', measure), width, 2000, dark,
                                                           '--virtual-time-budget=3000', '--dump-dom').stdout)
    check(title and int(title.group(1)) <= width, f'{where}: it scrolls sideways, {title and title.group(1)} wide')

def main():
    if len(sys.argv) not in (2, 3): sys.exit(__doc__)
    with open(sys.argv[1], encoding='utf-8') as f: html = f.read()
    nothing_from_elsewhere(html, sys.argv[1])
    page = ET.fromstring(html.split('\n', 1)[1]) # without the doctype
    colours = {tag: tuple(int(rgb[i:i + 2], 16) for i in (0, 2, 4))
               for tag, rgb in re.findall(r'\.(t\d)\{background:#(\w{6})', html)}
    check(len(colours) == 7 and len(set(colours.values())) == 7, 'tags without a colour of their own')
    check(len(bars(page)) > 1, 'there are no bars')
    svg = None
    if len(sys.argv) == 3:
        with open(sys.argv[2], encoding='utf-8') as f: svg = f.read()
        nothing_from_elsewhere(svg, sys.argv[2])
        root = ET.fromstring(svg)
    if tally.failures: return 1
    names = [os.environ.get('CHROMIUM'), 'chromium', 'chromium-browser', 'google-chrome', 'google-chrome-stable',
             'chrome', 'headless_shell']
    program = next((p for p in (shutil.which(n) for n in names if n) if p), None)
    if not program:
        print('check_page.py: no Chromium here, so nobody has looked at the page (apt-get install chromium)')
        return 77
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        browser = Browser(program, folder)
        for width, dark in ((1200, False), (1200, True), (360, False)): look(browser, html, page, colours, width, dark)
        if svg:
            for ground in ('#ffffff', '#0d1117'):
                rows = browser.picture(f'<body style="margin:0;background:{ground}">{svg}', 900, 700, False)
                found, _ = coloured(rows, colours)
                rects = [(r.get('fill'), float(r.get('width')) * float(r.get('height')))
                         for r in root.iter('{http://www.w3.org/2000/svg}rect') if r.get('rx') is None]
                for tag, rgb in colours.items():
                    want = sum(a for fill, a in rects if fill == '#%02x%02x%02x' % rgb)
                    check(abs(found[tag] - want) < 0.25 * want + 400,
                          f'the chart on {ground}: {tag} covers {found[tag]} pixels, and should about {want:.0f}')
    if not tally.failures: print('the page is drawn: light, dark, on a phone')
    return tally.failures != 0
sys.exit(main())
