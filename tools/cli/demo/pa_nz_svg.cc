// The drawing: blocks from top to bottom, their chunks from left to right as they follow each other
// in memory, rows as thin strips; then one block as a line of bytes, and the address formula.
#include "demo/pa_nz_svg.h"

#include <fmt/core.h>

#include <algorithm>
#include <iterator>

#include "demo/svg.h"

namespace qkvfuse::cli {
namespace {

// Pixels.
constexpr double kMargin = 24;
constexpr double kLeft = 118;  // of the first chunk
constexpr double kTop = 138;   // of the first block
constexpr double kRowHeight = 4;
constexpr double kChunkWidth = 44;
constexpr double kChunkGap = 3;
constexpr double kHeadGap = 12;
constexpr double kBlockGap = 22;
constexpr double kLegendWidth = 236;
constexpr double kSwatchWidth = 26;
constexpr double kBarHeight = 26;
constexpr double kFooterHeight = 300;

constexpr int64_t kRowsPerTick = 8;

// The channel that the worked example addresses.
constexpr int64_t kExampleHead = 1;
constexpr int64_t kExampleChannel = 40;

constexpr const char* kInk = "#1f2933";
constexpr const char* kSoftInk = "#52606d";
constexpr const char* kUntouched = "#e4e7eb";
constexpr const char* kGrid = "#cbd2d9";
constexpr const char* kMono = "'DejaVu Sans Mono', Menlo, Consolas, monospace";

// Hue and saturation in degrees and percent, and the lightness of the sequence's first token.
struct Colour {
  int hue;
  int saturation;
  int lightness;
};
constexpr Colour kColours[] = {{212, 75, 30}, {22, 88, 48}, {145, 60, 34}, {285, 48, 42}};

class Drawing {
 public:
  explicit Drawing(const PaNzPicture& picture) : picture_(picture) {}

  std::string Draw() {
    DrawTitle();
    DrawColumnTitles();
    for (int64_t block = 0; block < picture_.blocks; ++block) DrawBlock(block);
    DrawLegend();
    DrawMemory(BlocksBottom() + 48);
    DrawFormula(BlocksBottom() + 184);
    return svg_.Finish(Right() + kLegendWidth, BlocksBottom() + kFooterHeight);
  }

 private:
  [[nodiscard]] int64_t chunks_per_head() const { return picture_.head_dim / picture_.chunk; }
  // An element of the int8 cache that is drawn is a byte.
  [[nodiscard]] int64_t ChunkBytes() const { return picture_.block_size * picture_.chunk; }
  [[nodiscard]] int64_t BlockBytes() const { return picture_.chunks() * ChunkBytes(); }

  [[nodiscard]] int64_t example_slot() const {
    return picture_.tokens[picture_.example_token].slot;
  }
  [[nodiscard]] int64_t ExampleBlock() const { return example_slot() / picture_.block_size; }
  [[nodiscard]] int64_t ExampleRow() const { return example_slot() % picture_.block_size; }
  [[nodiscard]] int64_t ExampleChunk() const {
    return (kExampleHead * picture_.head_dim + kExampleChannel) / picture_.chunk;
  }
  [[nodiscard]] int64_t ExampleLane() const {
    return (kExampleHead * picture_.head_dim + kExampleChannel) % picture_.chunk;
  }
  [[nodiscard]] int64_t ExampleElement() const {
    const int64_t chunk = ExampleBlock() * picture_.chunks() + ExampleChunk();
    return (chunk * picture_.block_size + ExampleRow()) * picture_.chunk + ExampleLane();
  }

  [[nodiscard]] double ChunkX(int64_t chunk) const {
    return kLeft + static_cast<double>(chunk) * (kChunkWidth + kChunkGap) +
           static_cast<double>(chunk / chunks_per_head()) * kHeadGap;
  }
  [[nodiscard]] double Right() const { return ChunkX(picture_.chunks() - 1) + kChunkWidth; }
  [[nodiscard]] double BlockHeight() const {
    return static_cast<double>(picture_.block_size) * kRowHeight;
  }
  [[nodiscard]] double RowY(int64_t block, int64_t row) const {
    return kTop + static_cast<double>(block) * (BlockHeight() + kBlockGap) +
           static_cast<double>(row) * kRowHeight;
  }
  [[nodiscard]] double BlocksBottom() const {
    return RowY(picture_.blocks - 1, picture_.block_size);
  }

  [[nodiscard]] std::vector<int> TokensOf(int sequence) const {
    std::vector<int> tokens;
    for (size_t t = 0; t < picture_.tokens.size(); ++t) {
      if (picture_.tokens[t].sequence == sequence) tokens.push_back(static_cast<int>(t));
    }
    return tokens;
  }

  // A sequence has a hue; its later tokens are lighter, which shows the order of the rows.
  [[nodiscard]] std::string ColourOf(int token) const {
    const int sequence = picture_.tokens[static_cast<size_t>(token)].sequence;
    const Colour& colour = kColours[static_cast<size_t>(sequence) % std::size(kColours)];
    const std::vector<int> tokens = TokensOf(sequence);
    const auto rank = std::find(tokens.begin(), tokens.end(), token) - tokens.begin();
    const auto lightness = colour.lightness + 38 * rank / std::ssize(tokens);
    return fmt::format("hsl({},{}%,{}%)", colour.hue, colour.saturation, lightness);
  }

  void DrawTitle() {
    svg_.Text(kMargin, 34, "Where the tokens of one step land in a PA_NZ cache",
              {.size = 21, .weight = "bold"});
    svg_.Text(kMargin, 56,
              fmt::format("int8 V cache [blocks={}, heads*head_dim/{}={}, block_size={}, {}], {} "
                          "KV heads of {} channels. Every colour was read back from the bytes "
                          "that the library wrote.",
                          picture_.blocks, picture_.chunk, picture_.chunks(), picture_.block_size,
                          picture_.chunk, picture_.heads, picture_.head_dim),
              {.size = 12.5, .fill = kSoftInk});
  }

  void DrawColumnTitles() {
    for (int64_t head = 0; head < picture_.heads; ++head) {
      const double begin = ChunkX(head * chunks_per_head());
      const double end = ChunkX((head + 1) * chunks_per_head() - 1) + kChunkWidth;
      svg_.Text((begin + end) / 2, kTop - 46, fmt::format("head {}", head),
                {.size = 13, .anchor = "middle", .weight = "bold"});
      svg_.HorizontalLine(begin, end, kTop - 39, kSoftInk, 1.2);
    }
    for (int64_t chunk = 0; chunk < picture_.chunks(); ++chunk) {
      const double centre = ChunkX(chunk) + kChunkWidth / 2;
      const int64_t channel = chunk % chunks_per_head() * picture_.chunk;
      svg_.Text(centre, kTop - 24, fmt::format("{}-{}", channel, channel + picture_.chunk - 1),
                {.size = 10.5, .fill = kSoftInk, .anchor = "middle"});
      svg_.Text(centre, kTop - 8, fmt::format("{}", chunk),
                {.size = 11, .anchor = "middle", .weight = "bold"});
    }
    svg_.Text(kLeft - 12, kTop - 24, "channels", {.size = 10.5, .fill = kSoftInk, .anchor = "end"});
    svg_.Text(kLeft - 12, kTop - 8, "chunk", {.size = 11, .anchor = "end", .weight = "bold"});
  }

  void DrawBlock(int64_t block) {
    const double y = RowY(block, 0);
    const int64_t first_slot = block * picture_.block_size;
    svg_.Text(kMargin, y + 14, fmt::format("block {}", block), {.size = 13, .weight = "bold"});
    svg_.Text(kMargin, y + 30, fmt::format("slots {}", first_slot),
              {.size = 10.5, .fill = kSoftInk});
    svg_.Text(kMargin, y + 43, fmt::format("to {}", first_slot + picture_.block_size - 1),
              {.size = 10.5, .fill = kSoftInk});
    for (int64_t chunk = 0; chunk < picture_.chunks(); ++chunk) DrawChunk(block, chunk);
    DrawRowTicks(block);
    if (block == ExampleBlock()) DrawExampleOutline();
  }

  void DrawChunk(int64_t block, int64_t chunk) {
    const double x = ChunkX(chunk);
    svg_.FilledBox({x, RowY(block, 0), kChunkWidth, BlockHeight()}, kUntouched);
    for (int64_t row = kRowsPerTick; row < picture_.block_size; row += kRowsPerTick) {
      svg_.HorizontalLine(x, x + kChunkWidth, RowY(block, row), kGrid, 0.6);
    }
    for (int64_t row = 0; row < picture_.block_size; ++row) {
      const int token = picture_.OwnerAt(block, chunk, row);
      if (token < 0) continue;
      svg_.FilledBox({x, RowY(block, row), kChunkWidth, kRowHeight}, ColourOf(token));
    }
  }

  void DrawRowTicks(int64_t block) {
    for (int64_t tick = 0; tick <= picture_.block_size; tick += kRowsPerTick) {
      const int64_t row = std::min(tick, picture_.block_size - 1);
      const double y = RowY(block, row) + kRowHeight / 2;
      svg_.HorizontalLine(kLeft - 7, kLeft - 2, y, kSoftInk, 1);
      svg_.Text(kLeft - 10, y + 3, fmt::format("row {}", row),
                {.size = 9, .fill = kSoftInk, .anchor = "end"});
    }
  }

  void DrawExampleOutline() {
    const double y = RowY(ExampleBlock(), ExampleRow());
    for (int64_t chunk = 0; chunk < picture_.chunks(); ++chunk) {
      svg_.Outline({ChunkX(chunk) - 1, y - 1, kChunkWidth + 2, kRowHeight + 2}, kInk, 1.2);
    }
    svg_.Text(Right() + 8, y + 6,
              fmt::format("slot {}: one row, {} pieces", example_slot(), picture_.chunks()),
              {.size = 11, .weight = "bold"});
  }

  void DrawLegend() {
    const double x = Right() + 28;
    double y = kTop + 8;
    svg_.Text(x, y, "Sequences of this step", {.size = 13, .weight = "bold"});
    for (size_t sequence = 0; sequence < picture_.sequences.size(); ++sequence) {
      y += 24;
      DrawLegendEntry(x, y, static_cast<int>(sequence));
      y += 15;
    }
    y += 34;
    svg_.FilledBox({x, y - 10, kSwatchWidth, 12}, kUntouched);
    svg_.Text(x + 34, y, "not touched by this step", {.size = 11.5});
  }

  // The shades of the sequence's tokens, its name, and the slots it goes to.
  void DrawLegendEntry(double x, double y, int sequence) {
    const std::vector<int> tokens = TokensOf(sequence);
    const double step = kSwatchWidth / static_cast<double>(tokens.size());
    for (size_t i = 0; i < tokens.size(); ++i) {
      svg_.FilledBox({x + static_cast<double>(i) * step, y - 10, step, 12}, ColourOf(tokens[i]));
    }
    svg_.Text(x + 34, y, picture_.sequences[static_cast<size_t>(sequence)], {.size = 11.5});
    svg_.Text(x + 34, y + 15, SlotRanges(tokens), {.size = 10.5, .fill = kSoftInk});
  }

  [[nodiscard]] std::string SlotRanges(const std::vector<int>& tokens) const {
    const auto slot = [&](size_t i) {
      return picture_.tokens[static_cast<size_t>(tokens[i])].slot;
    };
    std::string text = tokens.size() == 1 ? "slot " : "slots ";
    for (size_t begin = 0; begin < tokens.size();) {
      size_t end = begin + 1;
      while (end < tokens.size() && slot(end) == slot(end - 1) + 1) ++end;
      if (begin > 0) text += ", ";
      text += end - begin == 1 ? fmt::format("{}", slot(begin))
                               : fmt::format("{}-{}", slot(begin), slot(end - 1));
      begin = end;
    }
    return text;
  }

  // The example's block as one line of bytes.
  void DrawMemory(double y) {
    svg_.Text(kMargin, y, fmt::format("Block {} as it lies in memory", ExampleBlock()),
              {.size = 14, .weight = "bold"});
    svg_.Text(kMargin, y + 18,
              fmt::format("{} chunks of block_size*{} = {} bytes follow each other; a token owns "
                          "{} bytes in each, so one head is {} pieces, {} bytes apart.",
                          picture_.chunks(), picture_.chunk, ChunkBytes(), picture_.chunk,
                          chunks_per_head(), ChunkBytes()),
              {.size = 12, .fill = kSoftInk});
    const Box bar{kLeft, y + 42, Right() - kLeft, kBarHeight};
    const double per_byte = bar.width / static_cast<double>(BlockBytes());
    svg_.Text(kLeft - 12, bar.y + 17, "byte", {.size = 10.5, .fill = kSoftInk, .anchor = "end"});
    DrawMemoryBar(bar, per_byte);
    const double example_x =
        bar.x + static_cast<double>(ExampleElement() - ExampleBlock() * BlockBytes()) * per_byte;
    svg_.VerticalLine(example_x, bar.y + kBarHeight, bar.y + kBarHeight + 9, kInk, 1.8);
    svg_.Text(example_x, bar.y + kBarHeight + 20, fmt::format("{}", ExampleElement()),
              {.size = 10.5, .anchor = "middle", .weight = "bold"});
  }

  void DrawMemoryBar(const Box& bar, double per_byte) {
    svg_.FilledBox(bar, kUntouched);
    const double piece_width = static_cast<double>(picture_.chunk) * per_byte;
    for (int64_t chunk = 0; chunk < picture_.chunks(); ++chunk) {
      for (int64_t row = 0; row < picture_.block_size; ++row) {
        const int token = picture_.OwnerAt(ExampleBlock(), chunk, row);
        if (token < 0) continue;
        const auto piece = static_cast<double>(chunk * picture_.block_size + row);
        svg_.FilledBox({bar.x + piece * piece_width, bar.y, piece_width, bar.height},
                       ColourOf(token));
      }
    }
    for (int64_t chunk = 0; chunk <= picture_.chunks(); ++chunk) {
      const double x = bar.x + static_cast<double>(chunk * ChunkBytes()) * per_byte;
      svg_.VerticalLine(x, bar.y, bar.y + bar.height, "#ffffff", 1.5);
      if (chunk % chunks_per_head() == 0) DrawMemoryTick(x, bar.y, chunk);
    }
    svg_.Outline(bar, kSoftInk, 0.8);
  }

  void DrawMemoryTick(double x, double bar_y, int64_t chunk) {
    svg_.VerticalLine(x, bar_y + kBarHeight, bar_y + kBarHeight + 6, kSoftInk, 1);
    svg_.Text(x, bar_y + kBarHeight + 20,
              fmt::format("{}", ExampleBlock() * BlockBytes() + chunk * ChunkBytes()),
              {.size = 10.5, .fill = kSoftInk, .anchor = "middle"});
    if (chunk == picture_.chunks()) return;
    svg_.Text(x + 2, bar_y - 5, fmt::format("head {}", chunk / chunks_per_head()),
              {.size = 10.5, .fill = kSoftInk});
  }

  void DrawFormula(double y) {
    const TextStyle mono{.size = 12.5, .family = kMono};
    svg_.Text(kMargin, y, "Address of channel c of head h of the token in slot s",
              {.size = 14, .weight = "bold"});
    svg_.Text(kMargin, y + 24,
              fmt::format("block = s / {0}    row = s % {0}    chunk = (h*{1} + c) / {2}    "
                          "lane = (h*{1} + c) % {2}",
                          picture_.block_size, picture_.head_dim, picture_.chunk),
              mono);
    svg_.Text(kMargin, y + 44,
              fmt::format("element = ((block*{} + chunk)*{} + row)*{} + lane", picture_.chunks(),
                          picture_.block_size, picture_.chunk),
              mono);
    svg_.Text(kMargin, y + 70,
              fmt::format("Outlined: s = {}, h = {}, c = {}  ->  block {}, row {}, chunk {}, "
                          "lane {}  ->  (({}*{} + {})*{} + {})*{} + {} = {}",
                          example_slot(), kExampleHead, kExampleChannel, ExampleBlock(),
                          ExampleRow(), ExampleChunk(), ExampleLane(), ExampleBlock(),
                          picture_.chunks(), ExampleChunk(), picture_.block_size, ExampleRow(),
                          picture_.chunk, ExampleLane(), ExampleElement()),
              mono);
    svg_.Text(kMargin, y + 92,
              "A 16-bit cache has chunks of 16 channels instead of 32; a piece is 32 bytes in "
              "both.",
              {.size = 12, .fill = kSoftInk});
  }

  const PaNzPicture& picture_;
  Svg svg_;
};

}  // namespace

std::string DrawPaNz(const PaNzPicture& picture) { return Drawing(picture).Draw(); }

}  // namespace qkvfuse::cli
