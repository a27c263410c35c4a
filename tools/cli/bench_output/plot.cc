// Writes a gnuplot script and pipes it into the program.
#include "bench_output/plot.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <map>
#include <regex>
#include <utility>

#include "command.h"
#include "support/system.h"

namespace qkvfuse::cli {
namespace {

using bench::Regime;
using bench::RowResult;

/// "qnr/32x8x128/bf16/int8/pa_nz 2t": all of a name but T and regime.
std::string SeriesOf(const RowResult& row) {
  static const std::regex pattern("/T[0-9]+/(hot|cold)/");
  return std::regex_replace(row.row.name, pattern, " ");
}

/// The rows of the series with the most rows; the first of several.
std::vector<RowResult> LongestSeries(const std::vector<RowResult>& rows) {
  std::map<std::string, std::vector<RowResult>> series;
  for (const RowResult& row : rows) series[SeriesOf(row)].push_back(row);
  const std::vector<RowResult>* longest = &series.begin()->second;
  for (const RowResult& row : rows) {
    const std::vector<RowResult>& candidate = series[SeriesOf(row)];
    if (candidate.size() > longest->size()) longest = &candidate;
  }
  std::vector<RowResult> found = *longest;
  std::stable_sort(found.begin(), found.end(), [](const RowResult& a, const RowResult& b) {
    return a.row.tokens() < b.row.tokens();
  });
  return found;
}

std::vector<RowResult> OfRegime(const std::vector<RowResult>& rows, Regime regime) {
  std::vector<RowResult> found;
  std::copy_if(rows.begin(), rows.end(), std::back_inserter(found),
               [&](const RowResult& row) { return row.row.regime == regime; });
  return found;
}

std::string DataBlock(const char* name, const std::vector<RowResult>& rows) {
  std::string text = fmt::format("${} << EOD\n", name);
  for (const RowResult& row : rows) {
    const std::string floor =
        row.convert_copy ? fmt::format("{:.5f}", row.PerToken(*row.convert_copy)) : "-";
    text += fmt::format("{} {:.4f} {:.4f} {:.5f} {:.5f} {}\n", row.row.tokens(),
                        row.gigabytes_per_second(), row.roof_gigabytes_per_second(),
                        row.us_per_token(), row.PerToken(row.unfused), floor);
  }
  return text + "EOD\n";
}

// Single quotes are doubled inside gnuplot's single-quoted strings.
std::string Quoted(const std::string& text) {
  std::string quoted = "'";
  for (const char c : text) quoted += c == '\'' ? std::string("''") : std::string(1, c);
  return quoted + "'";
}

constexpr const char* kStyle =
    "set encoding utf8\n"
    "set border 3 lc rgb '#555555'\n"
    "set tics nomirror out textcolor rgb '#333333'\n"
    "set grid ytics lc rgb '#dddddd' lt 1 lw 1\n"
    "set style line 1 lc rgb '#1f5fa8' lw 2.5 pt 7 ps 0.7\n"
    "set style line 2 lc rgb '#d0661b' lw 2.5 pt 5 ps 0.7\n"
    "set style line 3 lc rgb '#1f5fa8' lw 1.6 dt (6,4)\n"
    "set style line 4 lc rgb '#d0661b' lw 1.6 dt (6,4)\n";

// The title and, below it, the key lie above the axes, where no data is.
std::string Heading(const std::string& title) {
  return fmt::format(
      "set label 1 {} at graph 0, 1.25 left font ',15'\n"
      "set key at graph 0, 1.125 left center horizontal Left reverse samplen 2 width 1.5 "
      "textcolor rgb '#333333'\n",
      Quoted(title));
}

/// Smallest and largest bandwidth of both curves.
std::pair<double, double> BandwidthRange(const std::vector<RowResult>& rows) {
  std::pair<double, double> range{rows.front().gigabytes_per_second(), 0};
  for (const RowResult& row : rows) {
    for (const double rate : {row.gigabytes_per_second(), row.roof_gigabytes_per_second()}) {
      range = {std::min(range.first, rate), std::max(range.second, rate)};
    }
  }
  return range;
}

std::string RooflinePanel(const std::vector<RowResult>& rows, bool has_hot, bool has_cold) {
  const auto [lowest, highest] = BandwidthRange(rows);
  std::string text = Heading("Bytes moved per second, and the roof: a copy of as many bytes") +
                     fmt::format(
                         "set logscale x 2\nset logscale y 10\nset yrange [{:.3f}:{:.3f}]\n"
                         "set offsets graph 0.04, graph 0.04, 0, 0\n"
                         "set xlabel 'tokens T'\nset ylabel 'GB/s' offset 1,0\n"
                         "set ytics (1,2,3,5,7,10,15,20,30,50,70,100,150,200,300,500)\n"
                         "set xtics ()\nset for [t in tokens] xtics add (t t)\nplot ",
                         lowest * 0.75, highest * 1.35);
  std::vector<std::string> plots;
  const auto add = [&](const char* regime, int style) {
    plots.push_back(
        fmt::format("${0} using 1:2 with linespoints ls {1} title 'fused, {0}'", regime, style));
    plots.push_back(
        fmt::format("${0} using 1:3 with lines ls {1} title 'roof, {0}'", regime, style + 2));
  };
  if (has_hot) add("hot", 1);
  if (has_cold) add("cold", 2);
  return text + fmt::format("{}\n", fmt::join(plots, ", "));
}

std::string BarPanel(const std::vector<RowResult>& rows) {
  const char* const regime = rows.front().row.regime == Regime::kHot ? "hot" : "cold";
  double highest = 0;
  for (const RowResult& row : rows) highest = std::max(highest, row.PerToken(row.unfused));
  const std::string floor =
      rows.front().convert_copy
          ? fmt::format(", ${} using 6 lc rgb '#e0b040' title 'conversion only'", regime)
          : "";
  return Heading(fmt::format("Time per token, {}", regime)) +
         fmt::format(
             "unset logscale\nset autoscale\nset offsets 0, 0, 0, 0\n"
             "set xlabel 'tokens T'\nset ylabel 'us per token' offset 1,0\n"
             "set ytics auto\nset yrange [0:{1:.4f}]\n"
             "set style data histograms\nset style histogram clustered gap 1\n"
             "set style fill solid 0.9 noborder\nset boxwidth 0.92\n"
             "set xtics ()\nset xtics autofreq\n"
             "plot ${0} using 5:xtic(1) lc rgb '#b8b8b8' title 'unfused', "
             "${0} using 4 lc rgb '#1f5fa8' title 'fused'{2}\n",
             regime, highest * 1.05, floor);
}

}  // namespace

void RequireGnuplot() {
  if (std::system("gnuplot --version >/dev/null 2>&1") == 0) return;
  throw UsageError("--plot: there is no gnuplot; on Debian: apt-get install gnuplot-nox");
}

std::string PlotScript(const std::vector<RowResult>& rows, const std::string& svg) {
  const std::vector<RowResult> series = LongestSeries(rows);
  const std::vector<RowResult> hot = OfRegime(series, Regime::kHot);
  const std::vector<RowResult> cold = OfRegime(series, Regime::kCold);
  std::string tokens;
  for (const RowResult& row : series) tokens += fmt::format("{} ", row.row.tokens());
  std::string text = fmt::format(
      "set terminal svg size 1240,520 font 'DejaVu Sans,13' background rgb 'white' noenhanced\n"
      "set output {}\n{}tokens = '{}'\n",
      Quoted(svg), kStyle, tokens);
  if (!hot.empty()) text += DataBlock("hot", hot);
  if (!cold.empty()) text += DataBlock("cold", cold);
  text += fmt::format(
      "set multiplot layout 1,2 margins 0.06,0.985,0.13,0.70 spacing 0.075,0\n"
      "set label 2 {} at screen 0.06, 0.945 left font ',17'\n",
      Quoted(SeriesOf(series.front()) + "  on  " + CpuModel()));
  text += RooflinePanel(series, !hot.empty(), !cold.empty()) + "unset label 2\n";
  return text + BarPanel(hot.empty() ? cold : hot) + "unset multiplot\n";
}

void DrawPlot(const std::vector<RowResult>& rows, const std::string& svg) {
  if (rows.empty()) throw UsageError("--plot: there are no rows to draw");
  FILE* const gnuplot = popen("gnuplot", "w");
  if (gnuplot == nullptr) throw UsageError("--plot: gnuplot cannot be started");
  fmt::print(gnuplot, "{}", PlotScript(rows, svg));
  if (pclose(gnuplot) != 0) throw UsageError(fmt::format("--plot: gnuplot cannot draw {}", svg));
}

}  // namespace qkvfuse::cli
