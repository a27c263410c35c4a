// One list of columns for text and Markdown, and the same figures as JSON.
#include "bench_output/report.h"

#include <fmt/core.h>

#include <nlohmann/json.hpp>
#include <optional>

#include "bench/machine.h"
#include "qkvfuse/runtime.hpp"
#include "support/system.h"
#include "support/table.h"

namespace qkvfuse::cli {
namespace {

using bench::RowResult;
using bench::Spread;

constexpr const char* kExplanation =
    "us per token  median time of Plan::Run (checks and kernels, plan ready) over the tokens\n"
    "spread        p90 - p10 of that time, over its median\n"
    "MB, GB/s      bytes that the call must move, each input and output once, and over its time\n"
    "roof          share of a copy of as many bytes with the same reads to writes, on as many "
    "threads\n"
    "x floor       time over that of converting the same tensors to fp32 and back, no arithmetic\n"
    "unfused       time of several passes through memory over that of the fused call; ~ when the\n"
    "              spread of this ratio covers 1\n"
    "general       time of the same call on the general path, likewise\n"
    "Ratios are medians over rounds in which all take turns. docs/benchmarking.md has the "
    "method.\n";

double Megabytes(const RowResult& row) { return static_cast<double>(row.traffic.total()) * 1e-6; }

/// "-" where the row has no such contender.
std::string PlainRatio(const std::optional<Spread>& ratio) {
  return ratio ? fmt::format("{:.2f}", ratio->median) : "-";
}

std::string DecidedRatio(const std::optional<Spread>& ratio) {
  const bool is_undecided = ratio && ratio->p10 <= 1 && ratio->p90 >= 1;
  return (is_undecided ? "~" : "") + PlainRatio(ratio);
}

struct Column {
  Table::Column text;
  const char* markdown;
  std::string (*cell)(const RowResult&);
};

const std::vector<Column>& Columns() {
  static const std::vector<Column> columns = {
      {{"row", Table::Align::kLeft}, "row", [](const RowResult& r) { return r.row.name; }},
      {{"us per\ntoken"},
       "us per token",
       [](const RowResult& r) { return fmt::format("{:.3f}", r.us_per_token()); }},
      {{"spread"},
       "spread",
       [](const RowResult& r) { return fmt::format("{:.0f} %", r.spread() * 100); }},
      {{"MB"}, "MB", [](const RowResult& r) { return fmt::format("{:.3f}", Megabytes(r)); }},
      {{"GB/s"},
       "GB/s",
       [](const RowResult& r) { return fmt::format("{:.1f}", r.gigabytes_per_second()); }},
      {{"roof"},
       "share of roof",
       [](const RowResult& r) { return fmt::format("{:.0f} %", r.share_of_roof.median * 100); }},
      {{"x floor"}, "x convert_copy", [](const RowResult& r) { return PlainRatio(r.over_floor); }},
      {{"unfused"},
       "unfused / fused",
       [](const RowResult& r) { return DecidedRatio(r.unfused_ratio); }},
      {{"general"},
       "general / fused",
       [](const RowResult& r) { return DecidedRatio(r.general_ratio); }},
  };
  return columns;
}

std::vector<std::string> Cells(const RowResult& row) {
  std::vector<std::string> cells;
  for (const Column& column : Columns()) cells.push_back(column.cell(row));
  return cells;
}

/// Rows whose names agree up to T belong together.
std::string GroupOf(const RowResult& row) {
  return row.row.name.substr(0, row.row.name.find("/T"));
}

std::string RenderTable(const std::vector<RowResult>& rows) {
  std::vector<Table::Column> titles;
  for (const Column& column : Columns()) titles.push_back(column.text);
  Table table(titles);
  std::string group;
  for (const RowResult& row : rows) {
    if (GroupOf(row) != group) table.EndGroup();
    group = GroupOf(row);
    table.AddRow(Cells(row));
  }
  return table.Render();
}

// Rows of one token also tell what a call costs beyond its kernel.
std::string RenderCalls(const std::vector<RowResult>& rows) {
  Table table({{"one token", Table::Align::kLeft},
               {"call us"},
               {"kernel us"},
               {"check us"},
               {"call /\nkernel"}});
  bool is_empty = true;
  for (const RowResult& row : rows) {
    if (!row.kernel) continue;
    is_empty = false;
    table.AddRow({row.row.name, fmt::format("{:.2f}", row.fused.median * 1e6),
                  fmt::format("{:.2f}", row.kernel->median * 1e6),
                  fmt::format("{:.2f}", row.check->median * 1e6),
                  fmt::format("{:.2f}", row.call_ratio->median)});
  }
  return is_empty ? "" : fmt::format("\n{}", table.Render());
}

std::string Target(const std::vector<RowResult>& rows) {
  return rows.empty() ? "" : rows.front().target;
}

std::string MachineText(const BenchReport& report) {
  return fmt::format(
      "{}, {} processors (load {:.1f} at the start), last-level cache {:.0f} MiB, target {}, "
      "threads from {}",
      CpuModel(), HardwareThreads(), report.load_average,
      static_cast<double>(bench::LastLevelCacheBytes()) / (1 << 20), Target(report.rows),
      ThreadLibrary());
}

std::string VersionText() {
  return fmt::format("qkvfuse {}, commit {}, {}", Version(), bench::CommitText(),
                     bench::BuildText());
}

nlohmann::ordered_json SpreadJson(const Spread& spread, double unit) {
  return {{"median", spread.median * unit}, {"p10", spread.p10 * unit}, {"p90", spread.p90 * unit}};
}

nlohmann::ordered_json RowJson(const RowResult& row) {
  constexpr double kMicro = 1e6;
  nlohmann::ordered_json json;
  json["name"] = row.row.name;
  json["case"] = cases::PrintCase(row.row.c);
  json["regime"] = row.row.regime == bench::Regime::kHot ? "hot" : "cold";
  json["tokens"] = row.row.tokens();
  json["threads"] = row.row.c.threads;
  json["parts"] = row.parts;
  json["sets"] = row.sets;
  json["rounds"] = row.rounds;
  json["read_bytes"] = row.traffic.read_bytes;
  json["write_bytes"] = row.traffic.write_bytes;
  json["us_per_token"] = row.us_per_token();
  json["gb_per_s"] = row.gigabytes_per_second();
  json["roof_gb_per_s"] = row.roof_gigabytes_per_second();
  json["roof_stores"] = row.roof_bypasses_caches ? "bypass caches" : "ordinary";
  json["fused_us"] = SpreadJson(row.fused, kMicro);
  json["unfused_us"] = SpreadJson(row.unfused, kMicro);
  if (!row.passes.empty()) json["unfused_passes"] = row.passes;
  json["memcpy_us"] = SpreadJson(row.roof, kMicro);
  json["share_of_roof"] = SpreadJson(row.share_of_roof, 1);
  json["unfused_over_fused"] = SpreadJson(row.unfused_ratio, 1);
  const auto add = [&json](const char* key, const std::optional<Spread>& spread, double unit) {
    if (spread) json[key] = SpreadJson(*spread, unit);
  };
  add("convert_copy_us", row.convert_copy, kMicro);
  add("over_convert_copy", row.over_floor, 1);
  add("general_us", row.general, kMicro);
  add("general_over_fused", row.general_ratio, 1);
  add("kernel_us", row.kernel, kMicro);
  add("check_us", row.check, kMicro);
  add("call_over_kernel", row.call_ratio, 1);
  return json;
}

}  // namespace

std::string BenchReport::Text() const {
  return fmt::format("{}\n{}\n\n{}{}\n{}", VersionText(), MachineText(*this), RenderTable(rows),
                     RenderCalls(rows), kExplanation);
}

std::string BenchReport::Markdown() const {
  std::string text =
      fmt::format("{}; {}; {:g} s a row.\n\n", VersionText(), MachineText(*this), seconds_per_row);
  std::string rule;
  for (const Column& column : Columns()) {
    text += fmt::format("| {} ", column.markdown);
    rule += column.text.align == Table::Align::kLeft ? "|---" : "|---:";
  }
  text += "|\n" + rule + "|\n";
  for (const RowResult& row : rows) {
    for (const std::string& cell : Cells(row)) text += fmt::format("| {} ", cell);
    text += "|\n";
  }
  return text;
}

std::string BenchReport::Json() const {
  nlohmann::ordered_json json;
  json["version"] = Version();
  json["commit"] = bench::CommitText();
  json["build"] = bench::BuildText();
  json["cpu"] = CpuModel();
  json["processors"] = HardwareThreads();
  json["load_average"] = load_average;
  json["last_level_cache_bytes"] = bench::LastLevelCacheBytes();
  json["target"] = Target(rows);
  json["thread_library"] = ThreadLibrary();
  json["seconds_per_row"] = seconds_per_row;
  json["rows"] = nlohmann::ordered_json::array();
  for (const RowResult& row : rows) json["rows"].push_back(RowJson(row));
  return json.dump(2) + "\n";
}

}  // namespace qkvfuse::cli
