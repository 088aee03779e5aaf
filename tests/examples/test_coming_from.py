"""The pages for those who come from another tool have a row for every call and argument it has.

The names were read from the released packages of the versions that the pages name; none of them is installed here.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

PAGES = Path(__file__).parents[2] / "docs" / "coming-from"
CALLS = {
    # inspect.signature(torchinfo.summary), vars(ModelStatistics), RowSettings, ColumnSettings
    "torchinfo": """summary input_size input_data batch_dim cache_forward_pass col_names col_width depth device dtypes
        mode row_settings verbose kwargs summary_list total_params trainable_params total_mult_adds
        total_param_bytes total_output_bytes total_input to_readable formatting kernel_size output_size
        num_params params_percent mult_adds trainable var_names ascii_only hide_recursive_layers""",
    # inspect.signature(torchview.draw_graph), vars(ComputationGraph)
    "torchview": """draw_graph input_data input_size graph_name depth device dtypes mode strict expand_nested graph_dir
        hide_module_functions hide_inner_tensors roll show_shapes save_graph filename directory
        collect_attributes kwargs visual_graph resize_graph edge_list node_hierarchy""",
    # inspect.signature(torchexplorer.watch), torchexplorer.__init__
    "torchexplorer": """setup watch attach log log_freq ignore_io_grad_classes disable_inplace bins sample_n
        reject_outlier_proportion time_log delay_log_multi_backward backend standalone_dir standalone_port
        verbose LIGHTNING_EPOCHS StructureWrapper""",
    # padiff.__all__, inspect.signature(padiff.auto_diff), the seed's options
    "ppautodiff": """autodiff auto_diff LayerMap assign_weight add_special_init example_inp auto_weights options
        layer_map loss_fn optimizer steps atol rtol diff_phase compare_mode single_step""",
    "inspector-gadgets": "InspectorGadgets save_file start finish backward_mode forward_nan grad_in_nan grad_out_nan",
    "torchbug": """ModelSummary print compare compare_modules_in_forward_pass compare_final_outputs_in_forward_pass
        compare_module_outputs_in_forward_pass mark_module_for_comparison mark_all_modules_for_comparison
        unmark_module_for_comparison modules marked_modules_only""",
    "torchlens": """log_forward_pass layers_to_save vis_opt show_model_graph validate_forward_pass tensor_contents trace
        save load summary""",
}


def missing(page: str, names: str) -> list[str]:
    """Names that no table of a page has in its first column."""
    told = " ".join(re.findall(r"^\| ([^|]*\|[^|]*) \|", page, re.MULTILINE))
    return [name for name in names.split() if not re.search(rf"\b{name}\b", told)]


@pytest.mark.parametrize("tool", CALLS)
def test_every_call_has_a_row(tool: str) -> None:
    assert missing((PAGES / f"{tool}.md").read_text(encoding="utf-8"), CALLS[tool]) == []


def test_every_page_is_checked() -> None:
    assert {page.stem for page in PAGES.glob("*.md")} == {*CALLS, "index"}


def test_a_call_without_a_row_is_found() -> None:
    assert missing("| them | us | different |\n| `watch(x)` | `tl.watch(x)` | |\n", "watch attach") == ["attach"]
