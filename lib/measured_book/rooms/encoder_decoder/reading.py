"""The reading of the chapter on encoder and decoder that no expression says."""

from __future__ import annotations

from xarray import DataArray, Dataset

from measured_book.measuring import number


@number
def best_head(alignment: Dataset, *, score: str, model: str) -> DataArray:
    """A score of the head of cross-attention that aligns best on the validation numbers, for each seed."""
    heads = alignment.sel(model=model).stack(place=("layer", "head"))
    found: DataArray = heads[score].isel(place=heads.validation.argmax("place"))
    return found.reset_coords(drop=True)
