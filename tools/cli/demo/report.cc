// The table, what its columns mean, and the verdict.
#include "demo/report.h"

#include <fmt/core.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "qkvfuse/runtime.hpp"
#include "support/system.h"
#include "support/table.h"

namespace qkvfuse::cli {
namespace {

constexpr const char* kExplanation =
    "op            QNR: qkv bf16 -> RMSNorm and RoPE on q and k -> q out, k and v into the cache\n"
    "              DRQ: x int32 -> dequantise (weight scale, token scale, bias) -> RoPE on q and "
    "k\n"
    "              -> q out, k and v into the cache\n"
    "batch         decode: one token of each sequence, in page slots scattered over the cache; "
    "the\n"
    "              data stays in the processor's caches between runs, as memcpy's does\n"
    "              prefill: one prompt, page after page in shuffled order, from and to memory\n"
    "memcpy        time of a memcpy that moves the same bytes (half read, half written) over the\n"
    "              time of a whole Run; the two take turns on as many threads; medians\n"
    "q error       largest distance of q out to the same formulas in double, in units of the last\n"
    "              place of bf16 (of the larger of two values that RoPE turns together); rounding\n"
    "              the result to bf16 alone costs 0.5\n"
    "cache error   the same for a bf16 cache; for int8 the distance from a code to y / scale, of\n"
    "              which rounding alone costs 0.5\n"
    "K / V SNR     signal-to-noise of an int8 cache, code * scale against y in double; the scales\n"
    "              are amax / 127 of each head and channel over this batch\n"
    "bits          every byte of every output, untouched rows included, against the scalar\n"
    "              reference\n";

double MicrosecondsPerToken(const DemoRow& row) {
  return row.speed.run.median * 1e6 / static_cast<double>(row.scenario.description.tokens.total());
}

std::vector<std::string> Cells(const DemoRow& row) {
  const cases::Case& c = row.scenario.description;
  const Findings& findings = row.findings;
  return {row.scenario.model,
          fmt::format("{}/{}", c.heads.q, c.heads.k),
          row.scenario.batch,
          fmt::format("{}", c.tokens.total()),
          row.scenario.operator_name,
          row.scenario.cache,
          fmt::format("{:.2f}", MicrosecondsPerToken(row)),
          fmt::format("{:.1f}", row.speed.gigabytes_per_second()),
          fmt::format("{:.0f} %", row.speed.share_of_memcpy() * 100),
          fmt::format("{:.3f} ulp", findings.q_error),
          fmt::format("{:.3f} {}", findings.cache_error, findings.has_codes ? "step" : "ulp "),
          findings.has_codes
              ? fmt::format("{:.1f} / {:.1f} dB", findings.k_snr_db, findings.v_snr_db)
              : "-",
          !findings.difference.empty() ? "DIFFERENT"
          : findings.is_good()         ? "equal"
                                       : "INACCURATE"};
}

std::string RenderTable(const std::vector<DemoRow>& rows) {
  using Align = Table::Align;
  Table table({{"model", Align::kLeft},
               {"heads\nq/kv"},
               {"batch", Align::kLeft},
               {"tokens"},
               {"op", Align::kLeft},
               {"KV cache", Align::kLeft},
               {"us per\ntoken"},
               {"GB/s"},
               {"share of\nmemcpy"},
               {"q error"},
               {"cache error"},
               {"K / V SNR"},
               {"bits", Align::kLeft}});
  const DemoRow* previous = nullptr;
  for (const DemoRow& row : rows) {
    if (previous != nullptr && previous->scenario.model != row.scenario.model) table.EndGroup();
    table.AddRow(Cells(row));
    previous = &row;
  }
  return table.Render();
}

int64_t CountElements(const std::vector<DemoRow>& rows) {
  int64_t elements = 0;
  for (const DemoRow& row : rows) elements += row.findings.output_elements;
  return elements;
}

int64_t CountDisturbed(const std::vector<DemoRow>& rows) {
  return std::count_if(rows.begin(), rows.end(),
                       [](const DemoRow& row) { return row.speed.is_disturbed(); });
}

// What is wrong with a row, and the case that it was; empty when nothing is.
std::string Complaint(const DemoRow& row) {
  const Findings& findings = row.findings;
  if (findings.is_good()) return "";
  return fmt::format(
      "BAD  {} {}, {} {}: {}\n     {} elements outside the accuracy bound\n     {}\n",
      row.scenario.model, row.scenario.batch, row.scenario.operator_name, row.scenario.cache,
      findings.difference.empty() ? "bits are equal" : findings.difference, findings.inaccurate,
      cases::PrintCase(row.scenario.description));
}

nlohmann::ordered_json RowJson(const DemoRow& row) {
  const cases::Case& c = row.scenario.description;
  const Findings& findings = row.findings;
  nlohmann::ordered_json json;
  json["model"] = row.scenario.model;
  json["operator"] = row.scenario.operator_name;
  json["q_heads"] = c.heads.q;
  json["kv_heads"] = c.heads.k;
  json["head_dim"] = c.head_dim;
  json["batch"] = row.scenario.batch;
  json["tokens"] = c.tokens.total();
  json["cache"] = row.scenario.cache;
  json["us_per_token"] = MicrosecondsPerToken(row);
  json["bytes"] = row.speed.bytes;
  json["gb_per_s"] = row.speed.gigabytes_per_second();
  json["share_of_memcpy"] = row.speed.share_of_memcpy();
  json["disturbed"] = row.speed.is_disturbed();
  json["q_error_ulp"] = findings.q_error;
  json[findings.has_codes ? "cache_error_steps" : "cache_error_ulp"] = findings.cache_error;
  if (findings.has_codes) {
    json["k_snr_db"] = findings.k_snr_db;
    json["v_snr_db"] = findings.v_snr_db;
  }
  json["outside_accuracy_bound"] = findings.inaccurate;
  json["output_elements"] = findings.output_elements;
  json["equal_to_reference"] = findings.difference.empty();
  if (!findings.difference.empty()) json["difference"] = findings.difference;
  return json;
}

}  // namespace

int64_t DemoReport::CountBad() const {
  return std::count_if(rows.begin(), rows.end(),
                       [](const DemoRow& row) { return !row.findings.is_good(); });
}

std::string DemoReport::Text() const {
  std::string text = RenderTable(rows) + "\n" + kExplanation + "\n";
  for (const DemoRow& row : rows) text += Complaint(row);
  text += fmt::format(
      "{} of {} runs equal the exact reference in every one of {:.1f} million output elements, "
      "and stay\nwithin the accuracy bound of docs/numerics.md.\n",
      std::ssize(rows) - CountBad(), rows.size(), static_cast<double>(CountElements(rows)) * 1e-6);
  if (CountDisturbed(rows) > 0) {
    text += fmt::format(
        "In {} runs half the repetitions took more than twice the best one: the machine was busy, "
        "and\ntheir times say little.\n",
        CountDisturbed(rows));
  }
  text += fmt::format("{} shows where tokens land in a PA_NZ cache.  ({:.0f} s)\n", svg, seconds);
  return text;
}

std::string DemoReport::Json() const {
  nlohmann::ordered_json json;
  json["version"] = Version();
  json["cpu"] = CpuModel();
  json["target"] = rows.front().target;
  json["threads"] = threads;
  json["svg"] = svg;
  json["seconds"] = seconds;
  for (const DemoRow& row : rows) json["rows"].push_back(RowJson(row));
  return json.dump(2) + "\n";
}

}  // namespace qkvfuse::cli
