"The page in a real browser: headless Chromium by its driver; skipped where one of them or gradio is not installed"
import contextlib, os, shutil, time, zipfile
from importlib.util import find_spec
from pathlib import Path

import pytest
from PIL import Image

chromium, driver = (next(filter(None, map(shutil.which, names)), None) for names in (('chromium', 'google-chrome'), ('chromedriver',)))
missing = [name for name, found in (('gradio', find_spec('gradio')), ('selenium', find_spec('selenium')), ('chromium', chromium), ('chromedriver', driver)) if not found]
pytestmark = pytest.mark.skipif(bool(missing), reason=f'the page is tried in a browser only where there is {" and ".join(missing)}')
script = '<script>window.hit = 1</script><img src=x onerror="window.hit = 1">'

@pytest.fixture(scope='module')
def page(tmp_path_factory):
    os.environ['GRADIO_ANALYTICS_ENABLED'] = 'False'
    os.environ['GRADIO_TEMP_DIR'] = str(tmp_path_factory.mktemp('gradio'))
    from fcam.app.page import build_page, launch_page
    page = build_page(parent=tmp_path_factory.mktemp('visits'))
    page.address = launch_page(page)
    yield page
    page.close(verbose=False)

@pytest.fixture(scope='module')
def pictures(tmp_path_factory):
    "Pieces of two photographs, five of a building and five of a flower, and a file that is broken"
    from sklearn.datasets import load_sample_image
    folder = tmp_path_factory.mktemp('pictures')
    for name, file, corners in (('house', 'china', [(150, 28), (95, 130), (195, 130), (90, 232), (192, 232)]),
                                ('bloom', 'flower', [(190, 95), (292, 92), (170, 196), (272, 196), (262, 300)])):
        photo = Image.fromarray(load_sample_image(f'{file}.jpg'))
        for k, (left, top) in enumerate(corners): photo.crop((left, top, left + 100, top + 100)).save(folder/f'{name} {k}.png')
    (folder/'broken.png').write_bytes(b'nothing')
    return folder

class Visitor:
    "A person at a browser of their own"
    def __init__(self, address, width=1400, dark=False):
        from selenium import webdriver
        options = webdriver.ChromeOptions()
        options.binary_location = chromium
        for flag in ('--headless=new', '--no-sandbox', '--disable-dev-shm-usage', f'--window-size={width},1800'): options.add_argument(flag)
        self.driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(driver))
        self.driver.execute_cdp_cmd('Emulation.setDeviceMetricsOverride', dict(width=width, height=844 if width < 500 else 1800, deviceScaleFactor=1, mobile=width < 500))
        scheme = dict(name='prefers-color-scheme', value='dark' if dark else 'light')
        self.driver.execute_cdp_cmd('Emulation.setEmulatedMedia', dict(features=[scheme]))
        self.driver.get(address)
        self.wait(lambda: 'new pictures answered' in self.status() and self.all('#figure img'))

    def wait(self, ready, seconds=60):
        "Until `ready()`, which may meet a page that is being drawn anew"
        from selenium.common.exceptions import WebDriverException
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            with contextlib.suppress(WebDriverException, IndexError, StopIteration):
                if result := ready(): return result
            time.sleep(0.1)
        raise AssertionError(f'waited {seconds} s in vain; the page says: {self.status()}')

    def rest(self, seconds=1):
        "Waits until nothing has been under way on the page for a while; what is asked of it before may be lost"
        free = [time.monotonic()]
        def ready():
            if self.all('[data-testid=status-tracker]:not(.hide)'): free[0] = time.monotonic()
            return time.monotonic() - free[0] > seconds
        self.wait(ready, 120)

    def js(self, code, *given): return self.driver.execute_script(code, *given)
    def all(self, selector): return self.driver.find_elements('css selector', selector)
    def status(self): return self.js("return document.querySelector('#status textarea').value")
    def press(self, text): self.wait(lambda: next(o for o in self.all('button') if o.text.strip().split('\n')[0] == text)).click()
    def upload(self, selector, *files, k=0): self.wait(lambda: self.all(f'{selector} input[type=file]')[k]).send_keys('\n'.join(map(str, files)))
    def results(self, group='#check, #sure'):
        "The label, its probability and the file of each answer that is shown"
        return [o.text for one in group.split(', ') for o in self.all(f'{one} .caption-label')]
    def labels(self): return sorted(text.split('\n')[0].split(', ')[0] for text in self.results())
    def value(self, selector): return self.js('return document.querySelector(arguments[0])?.value', f'{selector} textarea, {selector} input')
    def top(self, selector): return self.js('return document.querySelector(arguments[0]).getBoundingClientRect().top + scrollY', selector)
    def options(self, selector):
        "What a list offers; it is open then"
        field = self.all(f'{selector} input')[0]
        self.js('arguments[0].scrollIntoView({block: "center"}); arguments[0].blur()', field)
        field.click()
        return self.wait(lambda: self.all('[role=option]'))

    def choose(self, selector, text):
        from selenium.webdriver import ActionChains
        one = self.wait(lambda: next(o for o in self.options(selector) if text in o.text))
        ActionChains(self.driver).move_to_element(one).click().perform()

    def type(self, selector, text):
        "Another value of a list, in one change: `clear` would choose one of its own, which keeps the page busy"
        from selenium.webdriver import Keys
        self.rest()
        field = self.wait(lambda: self.all(f'{selector} input')[0])
        field.click()
        field.send_keys(Keys.CONTROL, 'a')
        field.send_keys(text, Keys.ENTER)

    def classes(self): return [o.get_attribute('value') for o in self.all('.name-of-class input, .name-of-class textarea')]

    def name(self, k, text):
        "Gives a class its name, and leaves the field"
        field = self.wait(lambda: self.all('.name-of-class input, .name-of-class textarea')[k])
        field.clear()
        field.send_keys(text + '\t')

    def give(self, k, *files):
        "Puts pictures in the row of a class and waits until they are there"
        before = len(self.all('.pictures-of-class')[k].find_elements('css selector', 'img'))
        self.upload('.pictures-of-class', *files, k=k)
        self.wait(lambda: len(self.all('.pictures-of-class')[k].find_elements('css selector', '.caption-label')) == before + len(files))

@pytest.fixture
def visit(page):
    "Opens pages, and closes them at the end"
    opened = []
    def open_page(**looks):
        opened.append(Visitor(page.address, **looks))
        return opened[-1]
    yield open_page
    for one in opened: one.driver.quit()

def two_classes(visitor, pictures, names=('house', 'bloom')):
    visitor.press('Use my pictures')
    visitor.wait(lambda: len(visitor.all('.name-of-class')) == 2 and not visitor.results())
    for k, (name, kind) in enumerate(zip(names, ('house', 'bloom'))):
        visitor.name(k, name)
        visitor.give(k, *[pictures/f'{kind} {i}.png' for i in range(2)])
    visitor.wait(lambda: 'The classes are ready' in visitor.status())

@pytest.mark.parametrize('width', [1280, 390])
def test_opens_on_an_example(visit, width):
    "Photographs, said to be an example; one large button; answers in two groups; on a phone new pictures are asked for in the first screen"
    one = visit(width=width)
    assert 'Example' in one.all('#example')[0].text
    large = one.js("return [...document.querySelectorAll('button.lg')].filter(o => o.offsetParent).map(o => o.innerText)")
    assert large == ['Use my pictures'] and not one.all('#fill')
    check, sure = one.results('#check'), one.results('#sure')
    shares = [[float(text.split(', ')[1].split(' %')[0]) for text in group if not text.startswith('none')] for group in (check, sure)]
    assert check[0].startswith('none of these') and shares[0] == sorted(shares[0]) and shares[1] == sorted(shares[1])
    assert len(check + sure) == 10 and max(shares[0]) < 90 <= min(shares[1]), (check, sure)
    assert all(text.endswith('.png') for text in check + sure)
    assert f'{len(check)} to check, {len(sure)} sure' in one.status()
    assert 'of 100 new pictures like these are named rightly' in one.value('#trust')
    if width < 500:
        assert one.top('#new') < 844 and one.top('#check') < one.top('#sure') < one.top('#why')
    else: assert one.top('#check') < 800 and one.top('#figure') < 800

@pytest.mark.parametrize('width', [1280, 390])
def test_boxes_grow_with_their_answers(visit, pictures, tmp_path, width):
    one, n = visit(width=width), 60
    two_classes(one, pictures)
    one.upload('#new', *[shutil.copy(pictures/f'{("house", "bloom")[k%2]} {k%5}.png', tmp_path/f'a {k}.png') for k in range(n)])
    one.wait(lambda: len(one.results()) == n, 120)
    hidden = one.js("""return ['check', 'sure'].map(o => document.getElementById(o)).filter(o => o).flatMap(box => [...box.querySelectorAll('.caption-label')]
        .filter(o => o.getBoundingClientRect().bottom > box.getBoundingClientRect().bottom).map(o => o.innerText))""")
    assert not hidden, hidden
    assert not one.js("return [...document.querySelectorAll('#check .grid-wrap, #sure .grid-wrap')].filter(o => o.scrollHeight > o.clientHeight + 1).length")

def test_a_click_updates_why_alone(visit):
    one = visit()
    one.rest()
    before = one.js("return document.querySelector('#figure img').src")
    one.js("""window.busy = new Set(); new MutationObserver(all => all.forEach(({target: o}) => {
        if (o.dataset?.testid == 'status-tracker' && !o.classList.contains('hide')) busy.add(o.parentElement.id) }))
        .observe(document.body, {attributes: true, subtree: true, childList: true})""")
    answer = one.results('#sure')[-1].split('\n')
    one.all('#sure button.thumbnail-lg')[-1].click()
    one.wait(lambda: one.value('#answer') == f'{answer[1]}: {answer[0].split(", ")[0]}')
    one.wait(lambda: one.js("return document.querySelector('#figure img').src") != before)
    assert one.js('return [...busy]') == ['figure']

def test_own_pictures(visit, pictures, tmp_path):
    "Two classes, an answer, corrections and their undoing, a broken file, and the zip"
    one = visit()
    two_classes(one, pictures)
    one.upload('#new', pictures/'house 3.png', pictures/'bloom 3.png', pictures/'broken.png')
    one.wait(lambda: len(one.results()) == 2)
    assert 'left out, since it cannot be read: broken.png' in one.status()
    assert one.labels() == ['bloom', 'house']
    one.rest()
    one.choose('#only', 'house (1)')
    one.wait(lambda: one.labels() == ['house'])
    one.rest()
    one.choose('#only', 'all (2)')
    one.wait(lambda: len(one.results()) == 2)
    one.rest()
    next(o for o in one.all('button.thumbnail-lg') if 'house 3.png' in o.text).click()
    one.wait(lambda: one.value('#answer') == 'house 3.png: house')
    one.rest()
    one.choose('#label', 'bloom')                               # which it is not
    given = lambda k: len(one.all('.pictures-of-class')[k].find_elements('css selector', '.caption-label'))
    one.wait(lambda: one.value('#did') == 'house 3.png is now an example of bloom, 3 pictures' and given(1) == 3)
    one.press('Undo')
    one.wait(lambda: one.value('#did') == 'house 3.png is a new picture again' and given(1) == 2)
    assert len(one.results()) == 2 and not [o for o in one.all('#undo') if o.is_displayed()]
    one.wait(lambda: one.value('#answer') == 'house 3.png: house')
    one.rest()
    one.press('Right')
    one.wait(lambda: one.value('#did') == 'house 3.png is now an example of house, 3 pictures' and given(0) == 3)
    one.wait(lambda: one.value('#answer') == 'bloom 3.png: bloom')      # the next one
    one.driver.execute_cdp_cmd('Browser.setDownloadBehavior', dict(behavior='allow', downloadPath=str(tmp_path)))
    assert not [o for o in one.all('#packed') if o.is_displayed()]
    one.press('Download sorted folders')
    one.wait(lambda: (tmp_path/'fcam.zip').is_file())
    names = zipfile.ZipFile(tmp_path/'fcam.zip').namelist()
    folders = [name.split('/')[:2] for name in names]
    assert folders.count(['classes', 'house']) == 3 and folders.count(['classes', 'bloom']) == 2, names
    assert {'sorted/house/house 3.png', 'sorted/bloom/bloom 3.png'} == {name for name in names if name.startswith('sorted/')}
    assert {'answers.csv', 'lines.py', 'classifier/classifier.json'} <= {*names}
    assert len([name for name in names if name.startswith('classifier/')]) == 2   # and the features

def test_needs_its_token(visit, page):
    "A browser without the token gets no page; with it, the token is kept and leaves the address"
    one = visit()
    assert one.driver.current_url == page.local_url
    one.driver.delete_all_cookies()
    one.driver.get(page.local_url)
    assert 'needs its token' in one.js('return document.body.innerText')
    one.driver.get(page.address.replace('127.0.0.1', 'localhost'))
    one.wait(lambda: 'new pictures answered' in one.status())

def test_names_are_text(visit, pictures):
    one = visit()
    two_classes(one, pictures, (script, 'b'))
    one.upload('#new', pictures/'house 3.png')
    one.wait(lambda: one.results() and script in (one.value('#answer') or ''))
    assert script in one.classes() and script in one.results()[0]
    one.wait(lambda: any(script in o.text for o in one.options('#only')))
    assert one.js('return window.hit') is None

def test_two_visitors(visit, pictures):
    one, other = visit(), visit()
    two_classes(one, pictures)
    one.upload('#new', pictures/'house 4.png')
    one.wait(lambda: len(one.results()) == 1)
    assert len(other.results()) == 10 and other.classes() == ['pagoda', 'trees', 'dahlia']
    other.driver.refresh()
    other.wait(lambda: len(other.results()) == 10)
    assert len(one.results()) == 1

def test_zips(visit, pictures, tmp_path):
    "One whose path leads out of it (zipfile keeps it inside, in no class), one that unpacks to gigabytes, and a good one"
    one = visit()
    files = dict(evil={'../evil.png': b''}, bomb={f'a/{k}.png': bytes(2**28) for k in range(5)},
                 good={f'{kind}/{i}.png': (pictures/f'{kind} {i}.png').read_bytes() for kind in ('house', 'bloom') for i in range(3)})
    for name, content in files.items():
        with zipfile.ZipFile(tmp_path/f'{name}.zip', 'w', zipfile.ZIP_DEFLATED) as packed:
            for path, one_file in content.items(): packed.writestr(path, one_file)
    one.press('Use my pictures')
    for name, said in (('evil', 'evil.zip holds no folders of classes'), ('bomb', 'would unpack to 1.2 GB'), ('good', 'The classes are ready')):
        one.upload('#fill', tmp_path/f'{name}.zip', k=1)
        one.wait(lambda: said in one.status())
    one.wait(lambda: one.classes() == ['bloom', 'house'])

@pytest.mark.parametrize('width', [1400, 390])
def test_a_folder_of_many_classes(visit, pictures, tmp_path, width):
    "Eight classes at once, by the names of their folders; rows are folded, and answers stand above and explained below"
    one, names = visit(width=width), [f'{kind} {k}' for k in range(4) for kind in ('house', 'bloom')]
    for name in names:
        (tmp_path/'all'/name).mkdir(parents=True)
        shutil.copy(pictures/f'{name}.png', tmp_path/'all'/name)
    one.press('Use my pictures')
    one.upload('#fill', tmp_path/'all')
    one.wait(lambda: 'The classes are ready' in one.status())
    one.wait(lambda: [o.text.split(',')[0] for o in one.all('.many-classes > * > button') if o.text] == sorted(names))
    one.upload('#new', pictures/'house 4.png')
    one.wait(lambda: len(one.results()) == 1)
    one.wait(lambda: one.all('#figure img'))
    assert one.top('#new') < 844 and one.top('#sure, #check') < 1500 and one.top('#why') < 2200
    assert one.js("return document.querySelector('.many-classes').clientHeight") < 450
    if width < 500: return
    one.press('house 0, 1 picture')                            # a row that was given a picture stays open
    one.wait(lambda: one.all('.pictures-of-class'))
    one.give(0, pictures/'house 4.png')
    one.wait(lambda: one.all('.pictures-of-class')[0].is_displayed(), 10)
    one.press('Settings')
    one.type('#encoder', 'torchvision:no_such')
    one.wait(lambda: 'no_such' in one.status() and 'Loading' not in one.status())

def test_200_pictures(visit, pictures, tmp_path):
    one, files = visit(), []
    two_classes(one, pictures)
    for k in range(200): files.append(shutil.copy(pictures/f'{("house", "bloom")[k%2]} {k%5}.png', tmp_path/f'{k}.png'))
    begin = time.monotonic()
    one.upload('#new', *files)
    one.wait(lambda: len(one.results()) == 200, 300)
    print(f'200 pictures: {time.monotonic() - begin:.1f} s; {one.status()}')

@pytest.mark.parametrize('width', [1280, 390])
def test_names_and_width(visit, width):
    "Every control has a name; nothing is wider than the screen; where Why is below, a click leads to it"
    one = visit(width=width)
    one.rest()
    one.all('#sure button.thumbnail-lg')[0].click()
    if width < 500: one.wait(lambda: abs(one.js("return document.querySelector('#why').getBoundingClientRect().top")) < 100)
    for text in ('Details', 'What misleads', 'The same in Python', 'Settings'): one.press(text)
    unnamed = one.js('''return [...document.querySelectorAll('button, input, textarea, select, [role=slider]')].filter(o =>
        o.offsetParent && !(o.ariaLabel || o.title || o.innerText.trim() || (o.labels && o.labels.length) || o.getAttribute('aria-labelledby')
        || o.querySelector('img[alt]:not([alt=""])'))).map(o => o.outerHTML.slice(0, 200))''')
    assert not unnamed, unnamed
    assert one.js('return document.documentElement.scrollWidth <= innerWidth')
