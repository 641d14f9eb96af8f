"""Meter readers on trees like those of real boards, and the recorder that integrates them."""

import os
import time
from pathlib import Path
from types import SimpleNamespace

import fake_sysfs
import pytest

from intattention.energy import Meter, MeterError, Recorder, find, open_meter
from intattention.energy.apple import BlockParser, PowermetricsMeter, ZeusMeter
from intattention.energy.hwmon import BatteryMeter, HwmonMeter
from intattention.energy.ina3221 import Ina3221Meter
from intattention.energy.rapl import RaplMeter
from intattention.energy.raspberry_pi import RaspberryPiMeter, rail_watts

NOT_ROOT = pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")


# RAPL -----------------------------------------------------------------------------------------
def test_rapl_counts_packages_and_memory(tmp_path: Path) -> None:
    meter = RaplMeter(fake_sysfs.rapl(tmp_path, packages=2, energy_uj=5_000_000))
    assert meter.total == ("package-0", "package-0 dram", "package-1", "package-1 dram")
    assert {"psys", "package-1 core"} <= set(meter.rails)
    fake_sysfs.rapl(tmp_path, packages=2, energy_uj=7_500_000)
    assert meter.read() == dict.fromkeys(meter.rails, 2.5)


def test_rapl_wraps_around(tmp_path: Path) -> None:
    span = 65_532_610_987
    meter = RaplMeter(fake_sysfs.rapl(tmp_path, energy_uj=span - 1_000_000, range_uj=span))
    for turn in range(3):
        fake_sysfs.rapl(tmp_path, energy_uj=2_000_000, range_uj=span)
        assert meter.read()["package-0"] == pytest.approx(3.0 + turn * span / 1e6)
        fake_sysfs.rapl(tmp_path, energy_uj=span - 1_000_000, range_uj=span)
        meter.read()


def test_rapl_says_what_is_wrong(tmp_path: Path) -> None:
    with pytest.raises(MeterError, match="no RAPL zones"):
        RaplMeter(tmp_path / "absent")
    fake_sysfs.rapl(tmp_path)
    (tmp_path / "intel-rapl:0" / "energy_uj").write_text("many\n")
    with pytest.raises(MeterError, match="'many', not a number"):
        RaplMeter(tmp_path)
    (tmp_path / "intel-rapl:0" / "energy_uj").unlink()
    with pytest.raises(MeterError, match=r"intel-rapl:0/energy_uj: No such file"):
        RaplMeter(tmp_path)


def test_rapl_says_how_to_get_permission(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_sysfs.rapl(tmp_path)
    real = Path.read_text

    def refuse(path: Path, *args: object, **options: object) -> str:
        if path.name == "energy_uj":
            raise PermissionError(13, "Permission denied")
        return real(path)

    monkeypatch.setattr(Path, "read_text", refuse)
    with pytest.raises(MeterError, match=r"energy_uj may not be read.*sudo chmod a\+r"):
        RaplMeter(tmp_path)


@NOT_ROOT
def test_rapl_without_permission(tmp_path: Path) -> None:
    fake_sysfs.rapl(tmp_path)
    (tmp_path / "intel-rapl:0" / "energy_uj").chmod(0)
    with pytest.raises(MeterError, match="may not be read"):
        RaplMeter(tmp_path)


# Jetson ---------------------------------------------------------------------------------------
def test_agx_orin_adds_three_rails(tmp_path: Path) -> None:
    meter = Ina3221Meter(fake_sysfs.ina3221(tmp_path, fake_sysfs.AGX_ORIN))
    assert meter.rails == ("VDD_GPU_SOC", "VDD_CPU_CV", "VIN_SYS_5V0", "VDDQ_VDD2_1V8AO")
    assert meter.total == ("VDD_GPU_SOC", "VDD_CPU_CV", "VIN_SYS_5V0")
    assert meter.read()["VDD_CPU_CV"] == pytest.approx(19.880 * 0.720)


def test_orin_nano_has_an_input_rail(tmp_path: Path) -> None:
    meter = Ina3221Meter(fake_sysfs.ina3221(tmp_path, fake_sysfs.ORIN_NANO))
    assert meter.total == ("VDD_IN",)
    assert meter.read()["VDD_IN"] == pytest.approx(5.064 * 1.120)


def test_rails_are_found_by_label_not_number(tmp_path: Path) -> None:
    [channels] = fake_sysfs.ORIN_NANO.values()
    moved = {"1-0040/hwmon/hwmon7": channels[::-1]}
    meter = Ina3221Meter(fake_sysfs.ina3221(tmp_path, moved))
    assert meter.read()["VDD_IN"] == pytest.approx(5.064 * 1.120)


def test_jetson_says_what_is_missing(tmp_path: Path) -> None:
    with pytest.raises(MeterError, match="no INA3221 monitor"):
        Ina3221Meter(tmp_path)
    agx = dict(fake_sysfs.AGX_ORIN)
    agx["1-0040/hwmon/hwmon3"] = [*agx["1-0040/hwmon/hwmon3"][:2], ("NC", 0, 0)]
    root = fake_sysfs.ina3221(tmp_path, agx)
    with pytest.raises(MeterError, match=r"needs VDD_IN or .*VIN_SYS_5V0; is one missing"):
        Ina3221Meter(root)
    fake_sysfs.ina3221(tmp_path, fake_sysfs.AGX_ORIN)
    (root / "1-0040/hwmon/hwmon3/curr2_input").unlink()
    with pytest.raises(MeterError, match="curr2_input: No such file"):
        Ina3221Meter(root)


# hwmon and batteries --------------------------------------------------------------------------
def test_hwmon_ina226(tmp_path: Path) -> None:
    fake_sysfs.write(tmp_path, {"hwmon0/name": "cpu_thermal", "hwmon0/temp1_input": 40000,
                                "hwmon1/name": "ina226", "hwmon1/power1_input": 5_250_000,
                                "hwmon2/name": "amdgpu", "hwmon2/power1_average": 1})  # fmt: skip
    meter = HwmonMeter(tmp_path)
    assert meter.read() == {"ina226": 5.25}


def test_several_hwmon_rails_must_be_chosen(tmp_path: Path) -> None:
    fake_sysfs.write(tmp_path, {"hwmon0/name": "ina226", "hwmon0/power1_input": 5_000_000,
                                "hwmon1/name": "ina226", "hwmon1/power1_input": 2_000_000,
                                "hwmon2/name": "scmi", "hwmon2/power1_label": "big",
                                "hwmon2/power1_input": 1_000_000})  # fmt: skip
    with pytest.raises(MeterError, match="may overlap: ina226, ina226 2, scmi big"):
        HwmonMeter(tmp_path)
    assert HwmonMeter(tmp_path, ["scmi big"]).total == ("scmi big",)
    with pytest.raises(ValueError, match="no rail scmi small; it has"):
        HwmonMeter(tmp_path, ["scmi small"])


def test_battery(tmp_path: Path) -> None:
    fake_sysfs.write(tmp_path, {"AC/type": "Mains",
                                "mouse/type": "Battery", "mouse/scope": "Device",
                                "BAT0/type": "Battery", "BAT0/status": "Discharging",
                                "BAT0/voltage_now": 12_000_000,
                                "BAT0/current_now": 500_000})  # fmt: skip
    meter = BatteryMeter(tmp_path)
    assert meter.read() == {"BAT0": pytest.approx(6.0)}
    fake_sysfs.write(tmp_path, {"BAT0/power_now": 7_000_000})
    assert meter.read() == {"BAT0": 7.0}
    fake_sysfs.write(tmp_path, {"BAT0/status": "Charging"})
    with pytest.raises(MeterError, match=r"BAT0 is Charging.*unplug"):
        meter.read()


# Raspberry Pi and Apple -----------------------------------------------------------------------
def test_raspberry_pi_5() -> None:
    meter = RaspberryPiMeter(lambda: fake_sysfs.PI5)
    assert meter.total == ("3V7_WL_SW", "1V8_SYS", "VDD_CORE")  # EXT5V has no current
    assert meter.read()["VDD_CORE"] == pytest.approx(1.2)


def test_raspberry_pi_without_rails() -> None:
    with pytest.raises(MeterError, match="no rail with volts and amperes: error=1"):
        rail_watts('error=1 error_msg="Command not registered"\n')
    with pytest.raises(MeterError, match=r"current\(7\)=1\.2\.3A"):
        rail_watts("VDD_CORE_A current(7)=1.2.3A\n")


def test_powermetrics_blocks_are_added_up() -> None:
    parser = BlockParser()
    for line in fake_sysfs.POWERMETRICS.splitlines():
        parser.feed(line)
    assert parser.joules == pytest.approx(
        {"cpu": 2 * 0.1 + 4 * 0.3, "gpu": 0.026 * 0.1 + 0.1 * 0.3, "ane": 0}
    )


@pytest.mark.skipif(os.uname().sysname == "Darwin", reason="there it exists")
def test_no_powermetrics_elsewhere() -> None:
    with pytest.raises(MeterError, match="not macOS"):
        PowermetricsMeter()


def test_zeus() -> None:
    values = SimpleNamespace(cpu_total_mj=1000, dram_mj=200, gpu_mj=None, ane_mj=0)
    meter = ZeusMeter(SimpleNamespace(get_cumulative_energy=lambda: values))
    assert meter.total == ("cpu", "dram")
    values.cpu_total_mj += 1500
    assert meter.read() == {"cpu": 1.5, "dram": 0.0, "ane": 0.0}
    values.cpu_total_mj = None
    with pytest.raises(MeterError, match="no CPU energy"):
        ZeusMeter(SimpleNamespace(get_cumulative_energy=lambda: values))


# recorder -------------------------------------------------------------------------------------
class FakeSensor(Meter):
    """A ramp of 2 W per second since ``begin``, and half of it beside."""

    name, method, kind = "fake", "a ramp", "power"
    rails, total, interval_s = ("in", "part"), ("in",), 0.005

    def __init__(self) -> None:
        self.begin = time.perf_counter()
        self.fails_after = float("inf")

    def read(self) -> dict[str, float]:
        seconds = time.perf_counter() - self.begin
        if seconds > self.fails_after:
            raise MeterError("unplugged")
        return {"in": 2 * seconds, "part": seconds}


class FakeCounter(FakeSensor):
    kind = "counter"


@pytest.mark.parametrize("meter", [FakeSensor(), FakeCounter()])
def test_recorder(meter: FakeSensor) -> None:
    begin = time.perf_counter() - meter.begin
    with Recorder(meter).record() as energy:
        time.sleep(0.1)
    end = begin + energy.seconds
    exact = end**2 - begin**2 if meter.kind == "power" else 2 * (end - begin)
    assert energy.joules == pytest.approx(exact, rel=0.02)
    assert energy.rails["part"] == pytest.approx(energy.joules / 2)
    assert energy.seconds >= 0.1
    assert energy.samples >= 3
    assert energy.watts == pytest.approx(energy.joules / energy.seconds)


def test_readings_at_the_ends_do_not_count() -> None:
    """The first is taken before the work starts to draw, the last when it has stopped."""
    meter, working = FakeSensor(), [False]
    meter.read = lambda: {"in": 9.0 if working[0] else 1.0, "part": 0.0}  # type: ignore[method-assign]
    with Recorder(meter).record() as energy:
        working[0] = True
        time.sleep(0.3)
        working[0] = False
    assert energy.watts == pytest.approx(9.0, rel=0.15)  # a reading may fall between


def test_recorder_tells_that_the_meter_failed() -> None:
    meter = FakeSensor()
    meter.fails_after = 0.05
    with pytest.raises(MeterError, match="unplugged"), Recorder(meter).record():
        time.sleep(0.1)


# finding --------------------------------------------------------------------------------------
def test_open_meter(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    fake_sysfs.ina3221(tmp_path, fake_sysfs.AGX_ORIN)

    def absent() -> Meter:
        raise MeterError("none here")

    readers = {"rapl": absent, "ina3221": lambda: Ina3221Meter(tmp_path)}
    monkeypatch.setattr(find, "READERS", readers)
    assert open_meter().name == "ina3221"
    assert open_meter("ina3221", ["VDD_CPU_CV"]).total == ("VDD_CPU_CV",)
    assert [(found.name, found.reason) for found in find.find_meters()] == [
        ("rapl", "none here"), ("ina3221", ""),
    ]  # fmt: skip
    with pytest.raises(MeterError, match="none here"):
        open_meter("rapl")
    with pytest.raises(ValueError, match="'tdp'; there are auto, rapl, ina3221"):
        open_meter("tdp")
    with pytest.raises(ValueError, match="no rail VDD_IN"):
        open_meter("ina3221", ["VDD_IN"])
    del readers["ina3221"]
    with pytest.raises(MeterError, match=r"no energy meter \(rapl: none here\)"):
        open_meter()
