"""Trees as sysfs shows them, written to a folder: what the meter readers are tested on."""

from pathlib import Path


def write(root: Path, files: dict[str, object]) -> Path:
    for name, value in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{value}\n")
    return root


def rapl(
    root: Path, packages: int = 1, energy_uj: int = 0, range_uj: int = 262_143_328_850
) -> Path:
    """Packages with core and dram, as on a server; psys beside them."""
    for p in range(packages):
        zones = {f"intel-rapl:{p}": f"package-{p}", f"intel-rapl:{p}:0": "core"}
        zones |= {f"intel-rapl:{p}:1": "dram"}
        for zone, name in zones.items():
            write(root, {f"{zone}/name": name, f"{zone}/energy_uj": energy_uj,
                         f"{zone}/max_energy_range_uj": range_uj})  # fmt: skip
    last = f"intel-rapl:{packages}"
    return write(root, {f"{last}/name": "psys", f"{last}/energy_uj": energy_uj,
                        f"{last}/max_energy_range_uj": range_uj})  # fmt: skip


def ina3221(root: Path, monitors: dict[str, list[tuple[str, int, int]]]) -> Path:
    """monitors: "1-0040/hwmon/hwmon3" -> (label, mV, mA) of channels 1, 2, 3."""
    for folder, channels in monitors.items():
        for number, (label, millivolts, milliamperes) in enumerate(channels, 1):
            write(root, {f"{folder}/in{number}_label": label,
                         f"{folder}/in{number}_input": millivolts,
                         f"{folder}/curr{number}_input": milliamperes})  # fmt: skip
        write(root, {f"{folder}/in7_label": "sum of shunt voltages", f"{folder}/name": "ina3221"})
    return root


AGX_ORIN = {
    "1-0040/hwmon/hwmon3": [
        ("VDD_GPU_SOC", 19888, 184), ("VDD_CPU_CV", 19880, 720), ("VIN_SYS_5V0", 4968, 1016),
    ],
    "1-0041/hwmon/hwmon4": [("NC", 0, 0), ("VDDQ_VDD2_1V8AO", 4968, 219), ("NC", 0, 0)],
}  # fmt: skip
ORIN_NANO = {
    "1-0040/hwmon/hwmon1": [
        ("VDD_IN", 5064, 1120), ("VDD_CPU_GPU_CV", 5064, 320), ("VDD_SOC", 5056, 280),
    ],
}  # fmt: skip

PI5 = """   3V7_WL_SW_A current(0)=0.08197434A
     1V8_SYS_A current(2)=0.20592870A
    VDD_CORE_A current(7)=1.50000000A
   3V7_WL_SW_V volt(8)=3.71000000V
     1V8_SYS_V volt(10)=1.80000000V
    VDD_CORE_V volt(15)=0.80000000V
      HDMI_V volt(23)=5.12000000V
     EXT5V_V volt(24)=5.15766000V
      BATT_V volt(25)=0.00000000V
"""
POWERMETRICS = """Machine model: Mac14,2
*** Sampled system activity (Fri Sep 11 13:41:46 2026 -0700) (100.00ms elapsed) ***

**** Processor usage ****
CPU 4 frequency: 2039 MHz

CPU Power: 2000 mW
GPU Power: 26 mW
ANE Power: 0 mW
Combined Power (CPU + GPU + ANE): 2026 mW

*** Sampled system activity (Fri Sep 11 13:41:47 2026 -0700) (300.00ms elapsed) ***
CPU Power: 4000 mW
GPU Power: 0.1 W
ANE Power: 0 mW
Combined Power (CPU + GPU + ANE): 4100 mW
"""
