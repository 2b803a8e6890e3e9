"""The console in a real browser: what it shows, that it moves by itself, and that nobody is shut
out of it.
"""

import re
import tarfile

import pytest
from browser import PHONE, browsers
from house import eventually
from jobs import Jobs
from playwright.sync_api import expect

# A program that reports until it is stopped.
PROGRAM = r"""
step=0
while true; do
  step=$((step + 1))
  echo "step $step train:loss=$((3000 - step)); validation:loss=$((3100 - step));"
  [ $((step % 5)) = 0 ] && printf '\033[31mred\033[0m <b>warning</b> %s\n' $step
  sleep 0.05
done
"""

METRICS = [("train:loss", r"train:loss=(\S+);"), ("validation:loss", r"validation:loss=(\S+);")]

EVIL = "<img src=x onerror=alert(1)><script>alert(2)</script>"


@pytest.fixture(scope="module")
def window():
    with browsers() as window:
        yield window


@pytest.fixture(scope="module")
def place(make_house):
    """A server with one job of each kind: what a visitor meets."""
    house = make_house("--memory", "2GiB", "--packing", "promise")
    jobs = Jobs(house)
    evil = jobs.command(
        f"echo '{EVIL}'; echo 'm=1;'; echo '{EVIL}' >&2; echo '{EVIL}' > /opt/ml/output/failure; exit 3",
        metrics=[("<i>m</i>", "m=(.*?);")],
        Tags=[{"Key": "note", "Value": "a tag"}],
        HyperParameters={"<i>hp</i>": EVIL},
        Environment={"EVIL": EVIL},
    )
    jobs.failed(evil)
    done = jobs.script(
        "echo 'loss=3;'; echo 'loss=2;'; echo weights > /opt/ml/model/w.txt", metrics=[("loss", "loss=(.*?);")]
    )
    jobs.completed(done)
    running = jobs.script(
        PROGRAM, instances=2, metrics=METRICS, name="running", StoppingCondition={"MaxRuntimeInSeconds": 3600}
    )
    jobs.until(running, "Training")
    waiting = jobs.command("true")
    jobs.until(waiting, "Pending")
    house.jobs, house.evil, house.done, house.running, house.waiting = jobs, evil, done, running, waiting
    return house


def paths(place):
    named = [place.evil, place.done, place.running, place.waiting]
    return [
        "/console",
        "/console?q=no-such-name",
        "/console?status=failed",
        "/console/no/such/page",
        *(f"/console/jobs/{name}" for name in named),
        f"/console/jobs/{place.running}/stop",
    ]


def settled(page):
    """Waits for what scripts add."""
    if page.locator("#charts").count() and page.locator("#metrics-table th").count():
        expect(page.locator("#charts canvas").first).to_be_visible()
    page.wait_for_function("!document.querySelector('#theme').hidden")


@pytest.mark.parametrize("dark", [False, True])
def test_every_page_is_accessible_and_asks_nobody_else(window, place, new_house, dark):
    seen = window(place, dark=dark)
    seen.rules = ["color-contrast"] if dark else None
    for path in paths(place):
        settled(seen.go(path))
        seen.is_accessible()
    seen.page.keyboard.press("?")
    seen.is_accessible()
    seen.complaints = [it for it in seen.complaints if "404" not in it]
    seen.is_sound()
    for stranger in [window(place, signed_in=False, dark=dark), window(new_house(), dark=dark)]:
        stranger.go("/console")
        stranger.is_accessible()
        stranger.is_sound()


def test_every_page_fits_a_phone(window, place):
    seen = window(place, viewport=PHONE)
    for path in paths(place):
        settled(seen.go(path))
        seen.fits()
    stranger = window(place, signed_in=False, viewport=PHONE)
    stranger.go("/console")
    stranger.fits()


def test_an_empty_house_says_how_to_begin(window, new_house):
    house = new_house()
    seen = window(house)
    page = seen.go("/console")
    expect(page.get_by_role("heading", name="No training job yet")).to_be_visible()
    page.evaluate("window.same = true")
    jobs = Jobs(house)
    name = jobs.command("sleep 2")
    row = page.locator(f"#job-{name}")
    expect(row).to_contain_text("sh -c sleep 2")
    expect(row).to_contain_text("Training")
    expect(row).to_contain_text("Completed")
    assert page.evaluate("window.same"), "without a reload"
    seen.is_sound()


def test_signing_in_with_keys(window, place):
    seen = window(place, signed_in=False)
    page = seen.go(f"/console/jobs/{place.done}")
    variables = place.variables_for_clients()
    page.get_by_label("Access key id").fill(variables["AWS_ACCESS_KEY_ID"])
    page.get_by_label("Secret access key").fill("wrong")
    page.get_by_role("button", name="Sign in").click()
    expect(page.get_by_role("alert")).to_contain_text("not this server's keys")
    page.get_by_label("Secret access key").fill(variables["AWS_SECRET_ACCESS_KEY"])
    page.get_by_role("button", name="Sign in").click()
    expect(page.get_by_role("heading", name=place.done)).to_be_visible()
    page.get_by_role("button", name="Sign out").click()
    expect(page.get_by_role("heading", name="Sign in")).to_be_visible()


def test_a_job_is_watched_without_a_reload(window, place):
    seen = window(place)
    page = seen.go(f"/console/jobs/{place.running}")
    page.evaluate("window.same = true")
    expect(page.locator(".badge.running").first).to_have_text("Training")
    value = page.locator("#charts .chart .legend b").first
    before = value.text_content()
    expect(value).not_to_have_text(before)
    # All series of a family share a chart, each host has its line, and each line says whose it is.
    assert page.locator("#charts .chart").count() == 1
    lines = [f"{metric} {host}" for metric in ("train:loss", "validation:loss") for host in ("algo-1", "algo-2")]
    eventually(lambda: len(page.locator("#charts .chart .legend button").all()) == len(lines))
    for line, shown in zip(lines, page.locator("#charts .chart .legend button").all_text_contents()):
        assert shown.startswith(line), shown
    # So are its instances, each metric in a chart with a line for each host.
    used = page.locator("#utilization-charts .chart").filter(has=page.get_by_role("heading", name="Processors"))
    eventually(lambda: [it[:6] for it in used.locator(".legend button").all_text_contents()] == ["algo-1", "algo-2"])
    assert page.locator("#utilization-charts .chart").count() >= 4
    last = page.locator("#lines p").last
    text = last.text_content()
    eventually(lambda: last.text_content() != text)
    assert {"algo-1", "algo-2"} == set(page.locator("#lines p b").all_text_contents()[-20:])
    # Once the page has points, only new ones are requested.
    asked = [url.partition("?")[2] for url in seen.requests if url.partition("?")[0].endswith("/series")]
    after = [query.startswith("after=") for query in asked]
    assert after == sorted(after) and after[-1], asked
    assert page.evaluate("window.same")
    seen.is_sound()


def test_the_log_is_searched_and_told_apart(window, place):
    seen = window(place)
    page = seen.go(f"/console/jobs/{place.running}")
    # Colours are colours, and what looks like markup is text.
    expect(page.locator("#lines i.c1").first).to_have_text("red")
    expect(page.locator("#lines p", has_text="<b>warning</b>").first).to_be_visible()
    page.get_by_label("Find in the whole log").fill("WARNING")
    expect(page.locator("#lines p").first).to_contain_text("red <b>warning</b>")
    eventually(lambda: all("warning" in text for text in page.locator("#lines p").all_text_contents()))
    page.get_by_label("Find in the whole log").fill("")
    page.get_by_role("button", name="algo-2", exact=True).click()
    eventually(lambda: set(page.locator("#lines p b").all_text_contents()) == {"algo-2"})
    page.keyboard.press("f")
    expect(page.locator("#log-follow")).to_have_attribute("aria-pressed", "false")
    seen.is_sound()


def test_a_long_log_is_there_to_its_first_line(window, new_house):
    house = new_house()
    jobs = Jobs(house)
    name = jobs.command("seq 1 1800")
    jobs.completed(name)
    seen = window(house)
    page = seen.go(f"/console/jobs/{name}")
    lines = page.locator("#lines p span")
    expect(lines.last).to_have_text("1800")
    while (earlier := page.get_by_role("button", name="Load earlier lines")).is_visible():
        before = lines.count()
        earlier.click()
        eventually(lambda: lines.count() > before)
    assert [text for text in lines.all_text_contents() if "[shoal]" not in text] == [str(n) for n in range(1, 1801)]
    page.get_by_label("Find in the whole log").fill("99")
    eventually(
        lambda: [text for text in lines.all_text_contents()] == [str(n) for n in range(1, 1801) if "99" in str(n)]
    )
    seen.is_sound()


def test_what_users_write_stays_text(window, place):
    seen = window(place)
    for path in ["/console", f"/console/jobs/{place.evil}"]:
        page = seen.go(path)
        settled(page)
        assert page.locator("img").count() == 0
        assert page.locator("main script").count() == 0
    for part, text in [
        (".notice.failed", EVIL),
        ("#charts", "<i>m</i>"),
        ("#tags", "a tag"),
        ("#lines", EVIL),
        ("aside", "<i>hp</i>"),
        ("#boto3", "<i>hp</i>"),
    ]:
        assert text in page.locator(part).text_content(), part
    seen.is_sound()


def test_a_waiting_job_says_why(window, place):
    page = window(place).go(f"/console/jobs/{place.waiting}")
    notice = page.get_by_role("region", name="Why it waits")
    expect(notice).to_contain_text("Next in the queue")
    expect(notice).to_contain_text(re.compile(r"Needs .* of memory, .* free"))


def test_a_model_is_downloaded(window, place, tmp_path):
    page = window(place).go(f"/console/jobs/{place.done}")
    with page.expect_download() as download:
        page.get_by_role("link", name="model.tar.gz").click()
    download.value.save_as(tmp_path / "model.tar.gz")
    with tarfile.open(tmp_path / "model.tar.gz") as archive:
        assert archive.extractfile("w.txt").read() == b"weights\n"
    with page.expect_download() as download:
        page.get_by_role("link", name="Download").click()
    lines = download.value.path().read_text().splitlines()
    assert [line.split("  ")[1:] for line in lines[-2:]] == [["algo-1", "loss=3;"], ["algo-1", "loss=2;"]]


def test_charts_can_be_read_closely(window, place):
    seen = window(place)
    page = seen.go(f"/console/jobs/{place.done}")
    chart = page.locator("#charts .chart")
    expect(chart.locator("canvas")).to_be_visible()
    assert page.get_by_role("table", name="Last value of each metric").locator("td").text_content() == "2"
    box = chart.locator(".u-over").bounding_box()
    page.mouse.move(box["x"] + 1, box["y"] + 20)
    expect(chart.locator("h3")).to_have_text("loss · step 1")
    expect(chart.locator(".legend b")).to_have_text("3")
    page.get_by_label("log scale").check()
    page.get_by_label("Smooth").fill("0.5")
    page.get_by_label("Across").select_option("at")
    expect(chart.locator("canvas")).to_be_visible()
    chart.locator(".legend button").click()
    expect(chart.locator(".legend button")).to_have_attribute("aria-pressed", "false")
    seen.is_sound()


def test_the_keyboard_is_enough(window, place):
    seen = window(place)
    page = seen.go("/console")
    page.keyboard.press("Tab")
    expect(page.get_by_text("Skip to the content")).to_be_focused()
    page.keyboard.press("Enter")
    page.keyboard.press("/")
    page.keyboard.type(place.done.upper())
    expect(page.locator("#jobs tbody tr")).to_have_count(1)
    expect(page).to_have_url(re.compile(f"q={place.done.upper()}"))
    page.keyboard.press("Escape")
    page.keyboard.press("j")
    expect(page.get_by_role("link", name=place.done)).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name=place.done)).to_be_visible()
    page.keyboard.press("l")
    expect(page.locator("#log")).to_be_focused()
    page.keyboard.press("?")
    expect(page.get_by_role("dialog", name="Keyboard shortcuts")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog", name="Keyboard shortcuts")).to_be_hidden()
    page.keyboard.press("u")
    expect(page.get_by_role("heading", name="Training jobs")).to_be_visible()
    seen.is_sound()


def test_light_and_dark_are_remembered(window, place):
    page = window(place).go("/console")
    ink = "getComputedStyle(document.body).backgroundColor"
    light = page.evaluate(ink)
    page.keyboard.press("t")
    dark = page.evaluate(ink)
    assert light != dark
    page.reload()
    assert page.evaluate(ink) == dark
    still = window(place, reduced_motion="reduce").go("/console")
    assert (
        still.evaluate("getComputedStyle(document.querySelector('.badge.running'), '::before').animationName") == "none"
    )


def test_pages_of_a_long_list(window, new_house):
    """Every job is on one page, in both directions; groups and counts agree."""
    house = new_house("--memory", "1GiB", "--packing", "promise")
    jobs = Jobs(house)
    jobs.until(jobs.command("sleep 300"), "Training")
    waiting = {jobs.command("true") for _ in range(120)}
    seen = window(house)
    page = seen.go("/console?status=waiting")
    names = page.locator("#jobs tbody th a")
    pages = []
    while True:
        pages.append(names.all_text_contents())
        if not (following := page.get_by_role("link", name="Next")).is_visible():
            break
        following.click()
    assert [len(names) for names in pages] == [50, 50, 20] and set(sum(pages, [])) == waiting
    for expected in pages[-2::-1]:
        page.get_by_role("link", name="Previous").click()
        assert names.all_text_contents() == expected
    assert not page.get_by_role("link", name="Previous").is_visible()
    expect(page.locator(".chip.waiting b")).to_have_text("120")
    page = seen.go("/console?sort=name&order=ascending")
    assert names.all_text_contents() == sorted(names.all_text_contents())
    seen.is_sound()


def test_stopping_a_job(window, place):
    seen = window(place)
    name = place.jobs.command("trap 'exit 0' TERM; while true; do sleep 0.1; done")
    page = seen.go(f"/console/jobs/{place.running}")
    page.get_by_role("link", name="Stop").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_role("button", name="Let it run").click()
    expect(dialog).to_be_hidden()
    page.get_by_role("link", name="Stop").click()
    page.get_by_role("button", name="Stop the job").click()
    expect(page.locator("#title .badge")).to_have_text("Stopped", timeout=120_000)
    assert place.jobs.describe(place.running)["TrainingJobStatus"] == "Stopped"
    expect(page.get_by_role("link", name="Stop")).to_be_hidden()
    seen.is_sound()
    # And without JavaScript, from the list on.
    place.jobs.until(name, "Training")
    plain = window(place, java_script_enabled=False).go("/console")
    plain.get_by_role("link", name=name).click()
    assert "MaxRuntimeInSeconds" in plain.locator("#boto3").text_content()
    plain.get_by_role("link", name="Stop").click()
    plain.get_by_role("button", name="Stop the job").click()
    assert place.jobs.wait(name)["TrainingJobStatus"] == "Stopped"
