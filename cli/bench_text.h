// Natural text for benchmarks: random tokens would spread over the experts as no real prompt does.
#pragma once

#include <string_view>

namespace strata::cli {

inline constexpr std::string_view kBenchText =
    R"(A workshop that repairs clocks has a wall of drawers. The few tools that every repair needs lie
on the bench, within reach of the hand. The next hundred hang on the wall behind the chair, a step
away. The rest, some thousands of springs, wheels and files that one clock in a hundred asks for, are
in the cellar. A good day is one on which nobody walks down the stairs. The owner learned this slowly.
At first she kept the tools in the order in which she had bought them, and spent her mornings on the
stairs. Then she put a mark on a drawer each time she opened it, and once a week she moved the drawers
with many marks up and those with few marks down. Old marks were rubbed out, because a tool that was
popular in spring, when the church clocks are serviced, lies idle in summer. After a month most
repairs needed nothing from the cellar. When one did, she had taken to looking at the next clock on
the shelf before she went down, to bring up what it would need as well, but only if her hands were
free; twice she had fetched the wrong wheel for a clock and made the one on the bench wait.

The letters that came with the clocks were another matter. Every customer wrote the same story: when
the clock had been bought, what it had struck at the wedding, how it had stopped. The apprentice read
each letter from the first line to the last, even if the customer had sent the same letter before and
had changed nothing but the date. One evening the owner laid two such letters over each other and held
them against the lamp. All but three lines lay exactly on top of each other. From then on she kept the
letters she had read, with her notes in the margin, and when a new one came she looked for its twin
and read only what differed. The apprentice asked whether a changed date might not change the meaning
of everything after it. She thought about it for a while. It might, she said, and so when it matters I
read the lines beside the change again, and a few more that seem to lean on it, and I write on the
note that I did so, and how often it led me astray. So far it had not happened with a date.

In winter the town asked whether she could look after the clocks of the next town too. She wrote that
her bench was full but that her brother had a cellar there with room for many drawers. If he kept the
heavy wheels where they were and filed them himself, then only the small sketch of the work had to
travel over the hill and the small result back, and never the wheels. They tried it with one clock. It
took a day longer and cost the price of a stamp. For a clock that would otherwise not have been
repaired at all, the town found this cheap. She hung a sign in the window that listed what she had
measured: how many clocks a week, how many walks to the cellar for each, how many letters read in full
and how many by their differences. Customers seldom read the sign. Other clockmakers did, and some of
them came in to ask about the marks on the drawers.)";

}  // namespace strata::cli
