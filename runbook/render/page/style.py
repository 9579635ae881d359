"""The page's style: one column, a calm scale of greys, colour only for what carries meaning. Light, dark and paper.

Contrasts of text on its ground, both ways, are at least 4.5 to 1; phases are told apart by their names, the colours only help.
"""

LIGHT = """--page:#fbfbf9;--card:#fff;--ink:#1b1d20;--soft:#585e66;--line:#e3e3de;--fine:#efefea;--link:#1f4f99;
--bad:#a3211c;--bad-bg:#fcefed;--wait:#7b4b00;--wait-bg:#fbf3e2;--good:#17663a;--good-bg:#ecf6ef;--none:#4a4f57;--none-bg:#f2f2ee;
--curve:#2b5fab;--even:#8b9097;--stall:#f6d9d5;--tick:#e9e9e4;--code:#f4f4f0;--add:#e6f4ea;--del:#fbe9e7;
--p0:#d5d9e2;--p1:#c3d3ee;--p2:#f3d9b4;--p3:#c8e3cf;--p4:#e2cdea;--p5:#f0cfd0;--p6:#c2e2e4;--p7:#e5e1b2"""
DARK = """--page:#141619;--card:#1a1d21;--ink:#e7e7e3;--soft:#a4aab2;--line:#2e3238;--fine:#23272c;--link:#8ab6f5;
--bad:#ff9d95;--bad-bg:#2e1b1b;--wait:#f0c268;--wait-bg:#2b2415;--good:#82d5a0;--good-bg:#17281d;--none:#c3c8ce;--none-bg:#22252a;
--curve:#7fb0f5;--even:#7b828b;--stall:#47272a;--tick:#272b30;--code:#20242a;--add:#17301f;--del:#3a2020;
--p0:#3c4350;--p1:#2c4470;--p2:#5a4320;--p3:#26503a;--p4:#4d3560;--p5:#5b3036;--p6:#1f4f54;--p7:#4d4a1e"""

RULES = """
*{box-sizing:border-box}
html{color-scheme:light dark;-webkit-text-size-adjust:100%;scroll-padding-top:1rem}
body{margin:0;background:var(--page);color:var(--ink);font:15px/1.5 system-ui,-apple-system,"Segoe UI",Roboto,"Helvetica Neue",Arial,
sans-serif}
main,header,footer{max-width:1120px;margin:0 auto;padding:0 28px}
header{padding-top:22px}
a{color:var(--link);text-decoration-thickness:1px;text-underline-offset:2px}
a:focus-visible,summary:focus-visible,[tabindex]:focus-visible{outline:2px solid var(--link);outline-offset:2px;border-radius:3px}
.skip{position:absolute;left:-999px}.skip:focus{left:28px;top:6px;background:var(--card);padding:4px 8px}
code,pre,kbd,.mono{font-family:ui-monospace,"SF Mono",SFMono-Regular,Menlo,Consolas,"DejaVu Sans Mono",monospace;font-size:.9em}
:not(pre)>code{background:var(--code);padding:.08em .32em;border-radius:4px;overflow-wrap:anywhere}
.top{display:flex;flex-wrap:wrap;gap:4px 18px;align-items:baseline;color:var(--soft);font-size:13px;margin-bottom:12px}
.top strong{color:var(--ink);font-weight:600}
nav{margin-left:auto}nav a{margin-left:14px;color:var(--soft);text-decoration:none}nav a:hover{text-decoration:underline}
.verdict{border:1px solid var(--line);border-left:5px solid var(--tone);border-radius:8px;background:var(--card);padding:18px 24px 16px}
.verdict h1{margin:0 0 4px;font-size:30px;line-height:1.2;letter-spacing:-.01em;font-weight:650;color:var(--tone)}
.verdict h1 small{font-size:.6em;font-weight:500;color:var(--soft);letter-spacing:0;margin-left:.4em}
.verdict .why{font-size:17px;line-height:1.45;margin:0 0 14px;max-width:62em;overflow-wrap:anywhere}
.small{color:var(--soft);font-size:13.5px;margin:10px 0 0}
.facts{display:grid;grid-template-columns:repeat(auto-fit,minmax(230px,1fr));gap:8px 28px;margin:0;padding-top:12px;
border-top:1px solid var(--fine)}
.facts div{min-width:0;max-width:100%}.facts dt{font-size:12px;color:var(--soft)}.facts dd{margin:0;overflow-wrap:anywhere}
.next{margin:14px 0 0;padding-top:12px;border-top:1px solid var(--fine)}.next h2{font-size:12px;font-weight:400;color:var(--soft);
margin:0}
.next ul+h2{margin-top:8px}.next ul{margin:2px 0 0;padding-left:1.1em}
.bad{--tone:var(--bad);--tint:var(--bad-bg)}.wait{--tone:var(--wait);--tint:var(--wait-bg)}
.good{--tone:var(--good);--tint:var(--good-bg)}.none{--tone:var(--none);--tint:var(--none-bg)}
section{margin:30px 0 0}
h2{font-size:18px;font-weight:620;margin:0 0 8px;letter-spacing:-.005em}h2 small{font-weight:400;color:var(--soft);font-size:.8em;
margin-left:.35em}
h3{font-size:14.5px;font-weight:620;margin:18px 0 6px}
p{margin:0 0 10px;max-width:72em;overflow-wrap:anywhere}.lead,.soft{color:var(--soft)}
.word{display:inline-block;color:var(--tone);background:var(--tint);border-radius:4px;padding:0 .45em;white-space:nowrap}
.wide{position:relative;overflow-x:auto;margin:0 0 12px}
table{border-collapse:collapse;width:100%;font-size:14px;font-variant-numeric:tabular-nums}
caption{position:absolute;width:1px;height:1px;overflow:hidden;clip-path:inset(50%)}
details caption{position:static;width:auto;height:auto;clip-path:none;text-align:left;color:var(--soft);padding:8px 0 2px}
th,td{text-align:left;vertical-align:top;padding:5px 14px 5px 0;border-bottom:1px solid var(--fine);font-weight:400;
unicode-bidi:isolate;overflow-wrap:break-word}
td.long{overflow-wrap:anywhere}
thead th{color:var(--soft);font-size:12.5px;border-bottom-color:var(--line);white-space:nowrap}
tbody th{white-space:nowrap}.events li,summary{overflow-wrap:anywhere}.steps td:last-child{min-width:15em}

.known{width:auto}.known th,.known td{padding-top:3px;padding-bottom:3px;border:0}.known th{color:var(--soft);padding-right:22px}
.known thead{display:none}
.steps td:nth-child(-n+6){overflow-wrap:normal;white-space:nowrap}
pre{background:var(--code);border-radius:6px;padding:10px 14px;margin:0 0 12px;overflow-x:auto;font-size:12.5px;line-height:1.5;
unicode-bidi:isolate;tab-size:4}
pre code{font-size:inherit}pre mark{background:var(--bad-bg);color:var(--bad);font-weight:600;display:inline-block;min-width:100%}
.diff ins{background:var(--add);text-decoration:none;display:inline-block;min-width:100%}
.diff del{background:var(--del);text-decoration:none;display:inline-block;min-width:100%}.diff b{color:var(--soft);font-weight:400}
details{margin:0 0 12px}summary{cursor:pointer;color:var(--link);width:fit-content;padding:2px 0}
blockquote{margin:0 0 10px;padding-left:14px;border-left:3px solid var(--line);color:var(--soft)}
figure{margin:0}
.row{display:grid;grid-template-columns:126px minmax(0,1fr) 168px;align-items:center}
.row .label{font-size:13px;padding-right:12px;color:var(--soft);white-space:nowrap;overflow:hidden;text-overflow:ellipsis}
.row .field{position:relative;min-width:0}
.row .value{font-size:12.5px;padding-left:14px;color:var(--soft);line-height:1.3;font-variant-numeric:tabular-nums;
overflow-wrap:anywhere}
.row .value small{display:block;font-size:12px}
.row.odd .label,.row.odd .value{color:var(--bad);font-weight:600}
.row svg{display:block;width:100%}.lane{height:20px}.plot{height:44px}
.plotted{border-top:1px solid var(--fine)}.plotted .value{color:var(--ink)}.plotted .value small{color:var(--soft)}
.ticks{height:20px;font-size:12px;color:var(--soft);position:relative}
.ticks span{position:absolute;transform:translateX(-50%);white-space:nowrap}.ticks span:first-child{transform:none}
.head .label,.head .value{font-size:12px}
svg .tick{stroke:var(--tick);stroke-width:1;vector-effect:non-scaling-stroke}
svg .stall{fill:var(--stall)}svg .alive{fill:var(--none-bg)}svg .step{fill:var(--none-bg);stroke:var(--line);
vector-effect:non-scaling-stroke}
svg .moved{fill:var(--curve)}svg .gone{stroke:var(--bad);stroke-width:3;vector-effect:non-scaling-stroke}
svg .state{fill:var(--bad)}svg .good{fill:var(--p3)}svg .odd{fill:var(--p2)}svg rect.none{fill:var(--none-bg)}
svg polyline{fill:none;stroke:var(--curve);stroke-width:1.6;vector-effect:non-scaling-stroke;stroke-linejoin:round}
svg polyline.even{stroke:var(--even);stroke-width:1.2}svg polyline.odd{fill:none;stroke:var(--bad);stroke-width:2.2}
.p0{--f:var(--p0)}.p1{--f:var(--p1)}.p2{--f:var(--p2)}.p3{--f:var(--p3)}.p4{--f:var(--p4)}.p5{--f:var(--p5)}.p6{--f:var(--p6)}
.p7{--f:var(--p7)}
svg [class^=p]{fill:var(--f)}svg.plot,svg.lane{fill:none}
.name{position:absolute;top:0;height:20px;line-height:20px;font-size:11.5px;padding-left:5px;overflow:hidden;pointer-events:none;color:var(--ink)}
/* a name without room wraps out of sight */
.name::before{content:"";display:inline-block;width:1px;height:20px;vertical-align:top}
.name b{display:inline-block;vertical-align:top;white-space:nowrap;font-weight:inherit;padding-right:4px}
.name.state{color:var(--page);font-weight:600}
.legend{list-style:none;display:flex;flex-wrap:wrap;gap:2px 16px;margin:8px 0 12px;padding:0 0 0 126px;font-size:12px;color:var(--soft)}
.legend i{display:inline-block;width:11px;height:11px;border-radius:2px;background:var(--f);margin-right:6px;vertical-align:-1px}
.legend .moved{background:var(--curve);height:4px;width:16px;vertical-align:2px;border-radius:0}
.stillkey{background:var(--stall);color:var(--ink);border-radius:3px;padding:0 .35em}
.bar{display:block;position:relative;height:12px;min-width:120px;background:var(--fine);border-radius:2px;margin-top:5px}
.bar i{position:absolute;top:0;bottom:0;min-width:2px;border-radius:2px;background:var(--tone)}
.events{list-style:none;margin:0;padding:0;font-size:12.5px}
.events li{display:grid;grid-template-columns:64px 78px minmax(0,1fr);gap:0 10px;padding:2px 0;border-bottom:1px solid var(--fine)}
.events li>*{overflow-wrap:anywhere;unicode-bidi:isolate}.events a{color:var(--soft);text-decoration:none}.events .t{color:var(--soft)}
:target{background:var(--wait-bg)}
footer{color:var(--soft);font-size:12.5px;padding-top:22px;padding-bottom:36px}
@media(max-width:720px){main,header,footer{padding-left:16px;padding-right:16px}.verdict{padding:14px 16px}.verdict h1{font-size:25px}
.verdict .why{font-size:16px}
nav{margin-left:0}nav a{margin:0 14px 0 0}.row{grid-template-columns:82px minmax(0,1fr) 92px}.row .value{padding-left:8px}
.legend{padding-left:0}
.row .label{white-space:normal;overflow-wrap:anywhere;font-size:12px;line-height:1.2;padding-right:8px}
.events li{grid-template-columns:52px 1fr}
.events li>:last-child{grid-column:1/-1}}
"""
PAPER = """@page{margin:14mm}
body{font-size:11px;background:#fff}main,header,footer{max-width:none;padding:0}header{margin-bottom:4px}nav,.skip{display:none}
.verdict h1{font-size:24px}.verdict .why{font-size:14px}.small,table,.lead{font-size:11px}pre{font-size:9.5px}h2{font-size:15px}
h3{font-size:12px}
.verdict,tr,.row,li,figure{break-inside:avoid}h2,h3,summary{break-after:avoid}section{margin-top:18px}
*{print-color-adjust:exact;-webkit-print-color-adjust:exact}.wide,pre{overflow:visible}pre{white-space:pre-wrap;overflow-wrap:anywhere}
a{color:inherit;text-decoration:none}.steps th:nth-child(7),.steps td:nth-child(7){display:none}"""


def sheet() -> str:
    """The whole style sheet. Paper is always light."""
    dark = f"@media screen and (prefers-color-scheme:dark){{:root{{{DARK}}}}}"
    return f":root{{{LIGHT}}}{dark}{RULES}@media print{{{PAPER}}}"
