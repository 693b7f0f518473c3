"""What stands in plots."""

TEXTS = {
    "time in {unit}": "时间（{unit}）",
    ", first {count} of {of} streams": "，{of} 条流中的前 {count} 条",
    "limited by (share of busy time)": "受限于（占忙碌时间的比例）",
    "critical path": "关键路径",
    "not known": "未知",
    "FLOP per byte of device memory's traffic": "每字节设备内存访问的浮点运算（FLOP）",
    "the whole model": "整个模型",
    "speed-up over one stream": "相对单流的加速比",
    "no font with Chinese letters was found: the plot is labelled in English": (
        "没有找到中文字体：图中文字使用英文"
    ),
}
