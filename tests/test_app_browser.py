"The page in a real browser: headless Chromium by its driver; skipped where one of them or gradio is not installed"
import contextlib, os, shutil, time, urllib.request, zipfile
from importlib.util import find_spec
from pathlib import Path

import numpy as np
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
    launch_page(page)
    yield page
    page.close(verbose=False)

@pytest.fixture(scope='module')
def pictures(tmp_path_factory):
    "Discs and stripes, told apart with ease, and a file that is broken"
    folder, rng, (y, x) = tmp_path_factory.mktemp('pictures'), np.random.default_rng(0), np.mgrid[:48, :48]
    for k in range(5):
        (cy, cx), ink, paper = rng.uniform(18, 30, 2), rng.uniform(0, 60, 3), rng.uniform(190, 255, 3)
        for name, shape in (('disc', np.hypot(y - cy, x - cx) < 13), ('stripes', (x + k)%8 < 4)):
            Image.fromarray(np.where(shape[..., None], ink, paper).astype(np.uint8)).save(folder/f'{name} {k}.png')
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
        self.driver.execute_cdp_cmd('Emulation.setDeviceMetricsOverride', dict(width=width, height=1800, deviceScaleFactor=1, mobile=width < 500))
        scheme = dict(name='prefers-color-scheme', value='dark' if dark else 'light')
        self.driver.execute_cdp_cmd('Emulation.setEmulatedMedia', dict(features=[scheme]))
        self.driver.get(address)
        self.wait(lambda: 'new pictures answered' in self.status())

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
    def results(self): return [o.text for o in self.all('#results .caption-label')]
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
        opened.append(Visitor(page.local_url, **looks))
        return opened[-1]
    yield open_page
    for one in opened: one.driver.quit()

def two_classes(visitor, pictures, names=('disc', 'stripes')):
    visitor.press('Start empty')
    visitor.wait(lambda: len(visitor.all('.name-of-class')) == 2 and not visitor.results())
    for k, (name, kind) in enumerate(zip(names, ('disc', 'stripes'))):
        visitor.name(k, name)
        visitor.give(k, *[pictures/f'{kind} {i}.png' for i in range(2)])
    visitor.wait(lambda: 'The classes are ready' in visitor.status())

def test_own_pictures(visit, pictures, tmp_path):
    "Two classes, an answer, a correction, a broken file, and the zip"
    one = visit()
    two_classes(one, pictures)
    one.upload('#new', pictures/'disc 3.png', pictures/'stripes 3.png', pictures/'broken.png')
    one.wait(lambda: len(one.results()) == 2)
    assert 'left out, since it cannot be read: broken.png' in one.status()
    assert sorted(text.split(' % ')[-1] for text in one.results()) == ['disc', 'stripes']
    one.choose('#only', 'disc (1)')
    one.wait(lambda: [text.split(' % ')[-1] for text in one.results()] == ['disc'])
    one.choose('#only', 'all (2)')
    one.wait(lambda: len(one.results()) == 2)
    one.all('#results button')[1].click()
    chosen = one.wait(lambda: one.js("return document.querySelector('#answer textarea, #answer input').value"))
    one.choose('#label', 'stripes')
    one.wait(lambda: len(one.results()) == 1 and len(one.all('.pictures-of-class')[1].find_elements('css selector', '.caption-label')) == 3)
    one.press('Take it along')
    one.press('Pack classes, sorted pictures, table and classifier')
    link = one.wait(lambda: one.all('#packed a[download]')[0].get_attribute('href'))
    file = zipfile.ZipFile(urllib.request.urlretrieve(link, tmp_path/'fcam.zip')[0])
    folders = [name.split('/')[:2] for name in file.namelist()]
    assert folders.count(['classes', 'disc']) == 2 and folders.count(['classes', 'stripes']) == 3, chosen
    assert len([name for name in file.namelist() if name.startswith('sorted/')]) == 1
    assert {'answers.csv', 'lines.py', 'classifier/classifier.json'} <= {*file.namelist()}
    assert len([name for name in file.namelist() if name.startswith('classifier/')]) == 2   # and the features

def test_names_are_text(visit, pictures):
    one = visit()
    two_classes(one, pictures, (script, 'b'))
    one.upload('#new', pictures/'disc 3.png')
    one.wait(lambda: one.results())
    assert script in one.classes()
    one.wait(lambda: any(script in o.text for o in one.options('#label')))
    assert one.js('return window.hit') is None

def test_two_visitors(visit, pictures):
    one, other = visit(), visit()
    two_classes(one, pictures)
    one.upload('#new', pictures/'disc 4.png')
    one.wait(lambda: len(one.results()) == 1)
    assert len(other.results()) == 10 and other.classes() == ['Omega', 'Upsilon', 'Yaz']
    other.driver.refresh()
    other.wait(lambda: len(other.results()) == 10)
    assert len(one.results()) == 1

def test_zips(visit, pictures, tmp_path):
    "One whose path leads out of it (zipfile keeps it inside, in no class), one that unpacks to gigabytes, and a good one"
    one = visit()
    files = dict(evil={'../evil.png': b''}, bomb={f'a/{k}.png': bytes(2**28) for k in range(5)},
                 good={f'{kind}/{i}.png': (pictures/f'{kind} {i}.png').read_bytes() for kind in ('disc', 'stripes') for i in range(3)})
    for name, content in files.items():
        with zipfile.ZipFile(tmp_path/f'{name}.zip', 'w', zipfile.ZIP_DEFLATED) as packed:
            for path, one_file in content.items(): packed.writestr(path, one_file)
    for name, said in (('evil', 'evil.zip holds no folders of classes'), ('bomb', 'would unpack to 1.2 GB'), ('good', 'The classes are ready')):
        one.upload('#fill', tmp_path/f'{name}.zip', k=1)
        one.wait(lambda: said in one.status())
    one.wait(lambda: one.classes() == ['disc', 'stripes'])

@pytest.mark.parametrize('width', [1400, 390])
def test_a_folder_of_many_classes(visit, pictures, tmp_path, width):
    "Eight classes at once, by the names of their folders; rows are folded, and answers stand above and explained below"
    one, names = visit(width=width), [f'{kind} {k}' for k in range(4) for kind in ('disc', 'stripes')]
    for name in names:
        (tmp_path/'all'/name).mkdir(parents=True)
        shutil.copy(pictures/f'{name}.png', tmp_path/'all'/name)
    one.upload('#fill', tmp_path/'all')
    one.wait(lambda: 'The classes are ready' in one.status())
    one.wait(lambda: [o.text.split(',')[0] for o in one.all('.many-classes > * > button') if o.text] == sorted(names))
    one.upload('#new', pictures/'disc 4.png')
    one.wait(lambda: len(one.results()) == 1)
    top = lambda selector: one.js('return document.querySelector(arguments[0]).getBoundingClientRect().top + scrollY', selector)
    assert top('#results') < top('#point') < 2200 and top('#results') < 1500
    assert one.js("return document.querySelector('.many-classes').clientHeight") < 450
    if width < 500: return
    one.press('disc 0, 1 pictures')                            # a row that was given a picture stays open
    one.wait(lambda: one.all('.pictures-of-class'))
    one.give(0, pictures/'disc 4.png')
    one.wait(lambda: one.all('.pictures-of-class')[0].is_displayed(), 10)
    one.type('#encoder', 'torchvision:no_such')
    one.wait(lambda: 'no_such' in one.status() and 'Loading' not in one.status())

def test_200_pictures(visit, pictures, tmp_path):
    one, files = visit(), []
    two_classes(one, pictures)
    for k in range(200): files.append(shutil.copy(pictures/f'{("disc", "stripes")[k%2]} {k%5}.png', tmp_path/f'{k}.png'))
    begin = time.monotonic()
    one.upload('#new', *files)
    one.wait(lambda: len(one.results()) == 200, 300)
    print(f'200 pictures: {time.monotonic() - begin:.1f} s; {one.status()}')

@pytest.mark.parametrize('width', [1400, 390])
def test_pointing_names_and_width(visit, width):
    "A part can be pointed at; every control has a name; nothing is wider than the screen"
    one = visit(width=width)
    before = one.wait(lambda: one.js("return document.querySelector('#part input[type=number]').value"))
    image = one.wait(lambda: one.all('#point img')[0])
    from selenium.webdriver import ActionChains
    one.js('arguments[0].scrollIntoView({block: "center"})', image)
    for offset in (-60, 60):
        ActionChains(one.driver).move_to_element_with_offset(image, offset, offset).click().perform()
        time.sleep(4)
        after = one.js("return document.querySelector('#part input[type=number]').value")
        if after != before: break
    assert after != before
    for text in ('The plan', 'What misleads', 'Take it along', 'Settings'): one.press(text)
    unnamed = one.js('''return [...document.querySelectorAll('button, input, textarea, select, [role=slider]')].filter(o =>
        o.offsetParent && !(o.ariaLabel || o.title || o.innerText.trim() || (o.labels && o.labels.length) || o.getAttribute('aria-labelledby')
        || o.querySelector('img[alt]:not([alt=""])'))).map(o => o.outerHTML.slice(0, 200))''')
    assert not unnamed, unnamed
    assert one.js('return document.documentElement.scrollWidth <= innerWidth')
